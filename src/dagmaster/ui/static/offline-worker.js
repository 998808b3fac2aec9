/** The service worker: shows a page of ours if the server cannot be reached when a page is opened. It caches nothing else. */

const CACHE = "dagmaster-offline";
const BASE = new URL(".", location.href).pathname;
const PAGE = "/ui/offline";
const FILES = [PAGE, ...["style.css", "offline.js", "favicon.svg", "icons.svg"].map((name) => BASE + name)];

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  // Files of the version before: each has its hash in its path.
  event.waitUntil(caches.open(CACHE).then(async (cache) => {
    for (const request of await cache.keys()) if (!FILES.includes(new URL(request.url).pathname)) await cache.delete(request);
  }));
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.mode === "navigate") event.respondWith(fetch(request).catch(() => caches.match(PAGE)));
  else if (FILES.includes(new URL(request.url).pathname)) event.respondWith(fetch(request).catch(() => caches.match(request)));
});

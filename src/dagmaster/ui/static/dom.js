/** Builds DOM nodes. Text is always text: nothing here makes markup of data. */

const ASSETS = document.documentElement.dataset.assets;
const SVG = "http://www.w3.org/2000/svg";

/** Build elements: properties are set, `data` become attributes, children are nodes or text. No markup is parsed. */
export function make(tag, properties = {}, ...children) {
  const { data, ...others } = properties;
  const element = Object.assign(document.createElement(tag), others);
  Object.entries(data || {}).forEach(([name, value]) => element.setAttribute(name, value));
  element.append(...children);
  return element;
}

/** Return an icon of icons.svg. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `${ASSETS}/icons.svg#${name}`);
  svg.append(use);
  return svg;
}

/** Return the elements of a part of a page that the server rendered. Scripts in it never run. */
export function parseFragment(html) {
  return new DOMParser().parseFromString(html, "text/html").body;
}

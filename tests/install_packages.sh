#!/bin/sh
# Install what tests need of Debian's packages, if it is missing, in one run of apt-get: Chromium, PostGIS, PgBouncer.
# BROWSER=0 and POSTGIS=0 leave their tests out. No service is started, now or at boot, and no database is created.
set -eu

has() { command -v "$1" >/dev/null 2>&1; }

has_postgis() {
  for control in /usr/share/postgresql/*/extension/postgis.control; do
    version=${control#/usr/share/postgresql/}
    if [ -x "/usr/lib/postgresql/${version%%/*}/bin/postgres" ]; then return 0; fi
  done
  return 1
}

has_pgbouncer() { has pgbouncer || [ -x /usr/sbin/pgbouncer ]; }

can_install() { has apt-get && { [ "$(id -u)" = 0 ] || { has sudo && sudo -n true 2>/dev/null; }; }; }

missing=""
if [ "${BROWSER:-1}" = 0 ]; then
  echo "BROWSER=0: the tests of the web page in a browser are SKIPPED. Nothing else checks the pages." >&2
# Chromium without a user interface takes half the CPU time (2026-11: 16 instead of 31 s for eleven tests); a full one
# serves as well.
elif ! has chromium-headless-shell && ! { has chromium && ! can_install; }; then
  missing="$missing chromium-headless-shell fonts-liberation"
fi
if [ "${POSTGIS:-1}" = 0 ]; then
  echo "POSTGIS=0: the tests of PostGIS, pgstac, PgBouncer and the system's PostgreSQL are SKIPPED." >&2
else
  has_postgis || missing="$missing postgresql-postgis"
  has_pgbouncer || missing="$missing pgbouncer"
fi
if [ -z "$missing" ]; then exit 0; fi

if ! can_install; then
  echo "Tests need packages that cannot be installed from here (it takes apt-get, and root or sudo without a password)." >&2
  echo "Install them (Debian: sudo apt-get install$missing), or leave their tests out:" >&2
  echo "make test BROWSER=0 (the web page), make test POSTGIS=0 (PostGIS, pgstac, PgBouncer)" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then exec sudo BROWSER="${BROWSER:-1}" POSTGIS="${POSTGIS:-1}" sh "$0"; fi

policy=/usr/sbin/policy-rc.d
clusters=/etc/postgresql-common/createcluster.d
ours=""
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
  ours="$policy"
fi
if ! has pg_createcluster; then
  mkdir -p "$clusters"
  echo "create_main_cluster = false" >"$clusters/tests.conf"
  ours="$ours $clusters/tests.conf"
fi
# shellcheck disable=SC2086 # lists of names
trap 'rm -f $ours' EXIT INT TERM

# Recommended packages are a desktop's: they upgraded systemd and took 20 s more.
export DEBIAN_FRONTEND=noninteractive
apt="apt-get -qq -o DPkg::Lock::Timeout=300"
$apt update
# shellcheck disable=SC2086
if ! $apt install -y --no-install-recommends $missing; then
  # Older Debian and Ubuntu have Chromium with a user interface alone.
  case "$missing" in *chromium*) ;; *) exit 1 ;; esac
  # shellcheck disable=SC2086
  $apt install -y --no-install-recommends $(echo "$missing" | sed 's/chromium-headless-shell/chromium/')
fi
case "$missing" in
  *pgbouncer*) if has systemctl; then systemctl disable --quiet pgbouncer 2>/dev/null || true; fi ;;
esac

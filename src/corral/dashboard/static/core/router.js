// Addresses: which page is shown, with which parameters; links that need no reload.
//
//   route.value        {page, params, query, path}
//   go(path)           open a page; `go(path, {replace: true})` without a step back
//   setQuery({...})    change parameters of the address, where filters live
import { signal, html } from "./dom.js";
import { ROUTES } from "../pages.js";

const BASE = "/ui";
export const route = signal(null);

const compiled = ROUTES.map((entry) => ({
  ...entry,
  pattern: new RegExp(`^${entry.path.replace(/:(\w+)/g, "(?<$1>[^/]+)")}/?$`),
}));

function read() {
  const path = location.pathname.slice(BASE.length).replace(/\/$/, "") || "/";
  const query = Object.fromEntries(new URLSearchParams(location.search));
  for (const page of compiled) {
    const found = page.pattern.exec(path);
    if (found) {
      const params = Object.fromEntries(
        Object.entries(found.groups ?? {}).map(([name, text]) => [name, decodeURIComponent(text)]),
      );
      return { page, params, query, path };
    }
  }
  return { page: null, params: {}, query, path };
}

export const address = (path) => BASE + path;

export function go(path, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", address(path));
  update();
}

export function setQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  update();
}

function update() {
  route.value = read();
}

export function startRouter() {
  addEventListener("popstate", update);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
    if (link.origin !== location.origin || !link.pathname.startsWith(`${BASE}/`) || link.hash) return;
    event.preventDefault();
    history.pushState(null, "", link.href);
    update();
    scrollTo(0, 0);
  });
  update();
}

// A link to another page; `to` is without "/ui".
export const Link = ({ to, children, ...more }) =>
  html`<a href=${address(to)} ...${more}>${children}</a>`;

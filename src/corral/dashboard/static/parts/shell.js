// The frame around every page: navigation, who looks, the connection, light or dark.
import { html, useState, useEffect, useRef } from "../core/dom.js";
import { may, session, signOut } from "../core/api.js";
import { connection } from "../core/live.js";
import { Link, route } from "../core/router.js";
import { choose, theme } from "../core/theme.js";
import { GROUPS, ROUTES } from "../pages.js";
import { Icon } from "./icon.js";
import { act } from "./toast.js";
import { Choice } from "./page.js";

// On a phone these stand at the bottom, and everything else behind "More".
const FIRST = ["/", "/tasks", "/nodes", "/events"];
const WORDS = { off: "Offline", connecting: "Connecting…", live: "Live", lost: "Connection lost, trying again" };

const isHere = (path) => {
  const now = route.value.path;
  return path === "/" ? now === "/" : now === path || now.startsWith(`${path}/`);
};

const Item = ({ entry, onClick }) => html`
  <${Link} to=${entry.path} class="nav-item" aria-current=${isHere(entry.path) ? "page" : undefined} onClick=${onClick}>
    <${Icon} name=${entry.nav[1]} /><span>${entry.title}</span>
  </${Link}>
`;

export const Connection = () => html`
  <span class="connection ${connection.value}" role="status"><i aria-hidden="true"></i>${WORDS[connection.value]}</span>
`;

const Foot = () => html`
  <div class="foot">
    <${Connection} />
    <${Choice} label="Colours" value=${theme.value} options=${[["auto", "Auto"], ["light", "Light"], ["dark", "Dark"]]} onChange=${choose} />
    <div class="who">
      <span title="role: ${session.value.role}"><b>${session.value.name}</b> · ${session.value.role}</span>
      ${session.value.expires_at && html`<button class="plain" onClick=${() => act(signOut())}><${Icon} name="out" />Sign out</button>`}
    </div>
  </div>
`;

const Groups = ({ onClick }) => {
  const seen = ROUTES.filter((entry) => entry.nav && (!entry.role || may(entry.role)));
  return GROUPS.map((group) => {
    const here = seen.filter((entry) => entry.nav[0] === group);
    if (!here.length) return null;
    return html`<div class="nav-group" key=${group} role="group" aria-label=${group}>
      <p aria-hidden="true">${group}</p>
      ${here.map((entry) => html`<${Item} key=${entry.path} entry=${entry} onClick=${onClick} />`)}
    </div>`;
  });
};

export function Shell({ children }) {
  const [isOpen, setOpen] = useState(false);
  const main = useRef();
  const path = route.value.path;
  const before = useRef(path);
  useEffect(() => {
    setOpen(false);
    if (before.current !== path) main.current?.focus({ preventScroll: true });
    before.current = path;
  }, [path]);
  useEffect(() => {
    if (!isOpen) return undefined;
    const close = (event) => event.key === "Escape" && setOpen(false);
    addEventListener("keydown", close);
    return () => removeEventListener("keydown", close);
  }, [isOpen]);
  const first = FIRST.map((one) => ROUTES.find((entry) => entry.path === one)).filter(Boolean);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to content</a>
    <div class="shell ${isOpen ? "open" : ""}">
      <nav class="side" aria-label="Pages" id="pages">
        <${Link} to="/" class="brand"><svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" /><path d="M7 24V10m6 14V8m6 16V8m6 16V10M5 14h22M5 20h22" /></svg><span>Corral</span><small>${session.value.cluster}</small></${Link}>
        <div class="nav-groups"><${Groups} onClick=${() => setOpen(false)} /></div>
        <${Foot} />
      </nav>
      <main id="main" ref=${main} tabindex="-1">
        ${connection.value === "lost" && html`<p class="banner" role="alert">The manager does not answer. What you see is as it was; it goes on by itself.</p>`}
        ${children}
      </main>
      <nav class="bottom" aria-label="Main pages">
        ${first.map((entry) => html`<${Item} key=${entry.path} entry=${{ ...entry, title: entry.title.split(" ")[0] }} />`)}
        <button class="nav-item plain" aria-expanded=${isOpen} aria-controls="pages" onClick=${() => setOpen(!isOpen)}><${Icon} name="more" /><span>${isOpen ? "Close" : "More"}</span></button>
      </nav>
    </div>
  `;
}

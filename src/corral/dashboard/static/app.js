// Begins: who looks, which page, and the frame around it.
import { html, render, useState, useEffect, Fragment } from "./core/dom.js";
import { offer, readLink, session, whoami } from "./core/api.js";
import { start, stop } from "./core/live.js";
import { startRouter, route } from "./core/router.js";
import { Shell } from "./parts/shell.js";
import { Dialogs } from "./parts/dialog.js";
import { Toasts, toast } from "./parts/toast.js";
import { Empty, Fault, Skeleton } from "./parts/state.js";
import { Page } from "./parts/page.js";
import Login, { Offer } from "./pages/login.js";

const loaded = new Map();

function Current() {
  const { page, params, query } = route.value;
  const [, setTick] = useState(0);
  const [error, setError] = useState(null);
  useEffect(() => {
    setError(null);
    if (!page || loaded.has(page.path)) return;
    page
      .load()
      .then((found) => {
        loaded.set(page.path, found.default);
        setTick((tick) => tick + 1);
      })
      .catch((fault) => {
        console.warn(fault);
        setError(new Error("This page could not be loaded. The manager may have another version now: load it again."));
      });
  }, [page?.path]);
  if (!page) {
    return html`<${Page} title="Not found"><${Empty} title="There is no such page" hint="Choose one on the left." /></${Page}>`;
  }
  if (error) return html`<${Fault} error=${error} retry=${() => location.reload()} />`;
  const Body = loaded.get(page.path);
  // A page for another thing is another page: nothing of the old one stays.
  return Body ? html`<${Body} key=${JSON.stringify(params)} params=${params} query=${query} />` : html`<${Skeleton} />`;
}

function App() {
  const isIn = Boolean(session.value?.role) && !offer.value;
  useEffect(() => {
    if (isIn) start();
    else stop();
  }, [isIn]);
  return html`<${Fragment}>
    ${isIn ? html`<${Shell}><${Current} /></${Shell}>` : offer.value ? html`<${Offer} />` : html`<${Login} />`}
    <${Dialogs} /><${Toasts} />
  </${Fragment}>`;
}

const LINK = /^#link=([\w-]+)$/;
// A link that is opened where a page of ours is already: only its end is new.
addEventListener("hashchange", () => LINK.test(location.hash) && location.reload());

async function begin() {
  const link = LINK.exec(location.hash)?.[1];
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  await whoami().catch(() => {});
  // Anybody can send a link: whom it signs in is asked before it does.
  if (link) await readLink(link).catch((error) => session.value?.role || toast(error.message, "bad"));
  session.value ??= { name: null, role: null };
  startRouter();
  render(html`<${App} />`, document.getElementById("app"));
}

begin();

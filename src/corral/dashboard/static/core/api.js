// The one way to ask the manager: our session goes along, and every fault is an `ApiError`.
import { signal } from "./dom.js";

export class ApiError extends Error {
  constructor(message, code, status, details = {}, requestId = "") {
    super(message);
    Object.assign(this, { code, status, details, requestId });
  }
}

// Who looks: {name, role, cluster, version, expires_at}; null before it is known.
export const session = signal(null);
const LADDER = ["read", "submit", "operate", "admin"];

// May whoever looks do what asks for this role ("submit", "operate", "admin")?
export const may = (role) =>
  LADDER.indexOf(session.value?.role) >= LADDER.indexOf(role);

const withQuery = (path, query) => {
  if (!query) return path;
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") found.append(name, one);
    }
  }
  const text = found.toString();
  return text ? `${path}?${text}` : path;
};

async function fault(answer) {
  let told = {};
  try {
    told = (await answer.json()).error ?? {};
  } catch {
    // Something between us and the manager answered.
  }
  const message = told.message ?? `the manager answered ${answer.status}`;
  return new ApiError(message, told.code ?? "unknown", answer.status, told.details, told.request_id);
}

// What is under way when somebody signs out is given up: it would only be refused.
let stay = new AbortController();

// The whole answer; `ask` is for those who want what stands in it.
export async function send(method, path, { query, body, headers, signal: stop, quiet } = {}) {
  const head = { "X-Corral-Page": "1", ...headers };
  if (body !== undefined) head["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(withQuery(path, query), {
      method,
      headers: head,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: quiet ? stop : AbortSignal.any([stay.signal, ...(stop ? [stop] : [])]),
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("the manager cannot be reached", "unreachable", 0);
  }
  if (answer.ok) return answer;
  const found = await fault(answer);
  // Signed out: the shell shows the login page, which leads back here.
  if (answer.status === 401 && !quiet) session.value = { ...session.value, name: null, role: null };
  throw found;
}

const json = async (answer) => {
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
};

export const get = async (path, query, more) => json(await send("GET", path, { query, ...more }));
export const post = async (path, body = {}, more) => json(await send("POST", path, { body, ...more }));
export const put = async (path, body = {}, more) => json(await send("PUT", path, { body, ...more }));
export const patch = async (path, body = {}, more) => json(await send("PATCH", path, { body, ...more }));
export const del = async (path, more) => json(await send("DELETE", path, more));

// One part of a path, as ids may have anything in them.
export const part = (text) => encodeURIComponent(text);

// Fetch a file with our session and hand it to the browser to keep. A plain link would
// not do: the session counts for what this page asks, and for no link.
export async function download(path, name, { query, headers } = {}) {
  const answer = await send("GET", path, { query, headers });
  save(await answer.blob(), name);
}

export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export async function whoami() {
  session.value = await get("/ui/session", undefined, { quiet: true });
  return session.value;
}

// What a link offers to sign in as: {link, name, role, cluster}; null where none does.
export const offer = signal(null);

export async function readLink(link) {
  offer.value = { ...(await post("/ui/session", { link }, { quiet: true })), link };
}

export async function signIn({ key, link, name }) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const body = link ? { link, name } : {};
  session.value = await json(await send("POST", "/ui/session", { body, headers, quiet: true }));
}

export async function signOut() {
  stay.abort();
  try {
    await del("/ui/session", { quiet: true });
    session.value = { ...session.value, name: null, role: null };
  } finally {
    stay = new AbortController();
  }
}

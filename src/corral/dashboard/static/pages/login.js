// Who are you? A key, typed once; from then on a cookie stands for it.
import { html, useEffect } from "../core/dom.js";
import { offer, session, signIn } from "../core/api.js";
import { Field, Form } from "../parts/form.js";

const LOGO = html`<svg class="logo" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" /><path d="M7 24V10m6 14V8m6 16V8m6 16V10M5 14h22M5 20h22" /></svg>`;

// A link was opened: nobody is signed in by it without knowing as whom.
export function Offer() {
  const { link, name, role, cluster } = offer.value;
  const now = session.value?.role ? session.value.name : null;
  useEffect(() => {
    document.title = "Sign in · Corral";
  }, []);
  const accept = async () => {
    await signIn({ link, name });
    offer.value = null;
  };
  return html`
    <main class="login" id="main">
      ${LOGO}
      <h1>Sign in as ${name}?</h1>
      <p>This link signs you in to ${cluster} as <b>${name}</b>, who may ${role}. Go on if you asked for it, with <code>corral dashboard</code>.</p>
      ${now && html`<p>You are signed in as ${now}.</p>`}
      <${Form} action="Sign in" onSubmit=${accept} onCancel=${() => (offer.value = null)} />
    </main>
  `;
}

export default function Login() {
  useEffect(() => {
    document.title = "Sign in · Corral";
  }, []);
  return html`
    <main class="login" id="main">
      ${LOGO}
      <h1>Sign in to Corral</h1>
      <${Form} action="Sign in" onSubmit=${({ key }) => signIn({ key: (key ?? "").trim() })}>
        <input name="username" autocomplete="username" value="corral" hidden readonly />
        <${Field} name="key" label="Your key" type="password" required autocomplete="current-password" autofocus spellcheck="false"
          hint="It is not kept in this browser: a cookie stands for it, for 12 hours." />
      </${Form}>
      <div class="or">
        <p>On the manager's machine, this opens the page signed in:</p>
        <pre><code>corral dashboard</code></pre>
        <p>Without a key? An administrator makes one:</p>
        <pre><code>corral key create NAME</code></pre>
      </div>
    </main>
  `;
}

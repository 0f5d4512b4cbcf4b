// Show a view only while the command answers that made it. Another user's server may listen at its address by now.
// So an answer counts if it proves the secret of this view, which is never sent.
const { proof, state } = document.body.dataset;
const start = document.getElementById("session")?.dataset.start;
const [main, ended] = ["main", "ended"].map((id) => document.getElementById(id));
const encoder = new TextEncoder();
const HMAC = { name: "HMAC", hash: "SHA-256" };
let stopped = false;
let asking = false;

async function isProof(hex, said) {
  const key = await crypto.subtle.importKey("raw", encoder.encode(proof), HMAC, false, ["verify"]);
  const bytes = Uint8Array.from(hex?.match(/../g) ?? [], (each) => parseInt(each, 16));
  return crypto.subtle.verify(HMAC, key, bytes, encoder.encode(said));
}

// Return whether the command answers, and the view may stay. Leave a view that was locked. Hide the view while nothing
// answers, as after the machine was asleep; drop it for good when somebody else answers.
export async function proven() {
  if (stopped) return false;
  try {
    const nonce = crypto.randomUUID();
    const signal = AbortSignal.timeout(10_000);
    const answer = await fetch(`${state}?nonce=${nonce}`, { redirect: "manual", signal });
    const said = await answer.text();
    stopped = !(await isProof(answer.headers.get("X-Page-Proof"), `${nonce} ${said}`));
    if (stopped) document.body.replaceChildren(ended);
    main.hidden = stopped || Boolean(start && said === "locked");
    ended.hidden = !stopped;
    if (main.hidden && !stopped) location.replace(start);
  } catch {
    main.hidden = true;
    ended.hidden = false;
  }
  return !main.hidden;
}

// Let a click or a form go on once the command has proved that it gets it.
async function hold(event, go) {
  event.preventDefault();
  if (asking) return;
  asking = true;
  if (await proven()) go();
  asking = false;
}

// Replace the parts that have data-live by their present state.
async function renew() {
  const parts = document.querySelectorAll("[data-live]");
  if (document.hidden || !parts.length) return;
  const answer = await fetch(location.href, { redirect: "manual" }).catch(() => null);
  const text = answer?.ok ? await answer.text() : "";
  if (!(await proven())) return;
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const part of parts) {
    const next = fresh.getElementById(part.id);
    // A person who uses the keyboard keeps their place.
    if (next && !part.contains(document.activeElement)) part.replaceWith(document.adoptNode(next));
  }
}

addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (link && event.isTrusted) hold(event, () => link.dispatchEvent(new MouseEvent("click", event)));
}, true);
addEventListener("submit", (event) => hold(event, () => event.target.submit()), true);
// A tab that was in the background, or came back from the history.
addEventListener("pageshow", proven);
document.addEventListener("visibilitychange", proven);
setInterval(proven, 10_000);
setInterval(renew, 10_000);

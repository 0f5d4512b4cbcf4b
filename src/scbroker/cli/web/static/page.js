// Replace the parts of a view that have data-live by their present state, every few seconds.
"use strict";

const seconds = Number(document.body.dataset.refresh);
const ended = document.getElementById("ended");

async function refresh() {
  const parts = document.querySelectorAll("[data-live]");
  if (document.hidden || !parts.length) return;
  try {
    const answer = await fetch(location.href, { redirect: "error" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts) {
      const next = fresh.getElementById(part.id);
      // A person who uses the keyboard keeps their place.
      if (next && !part.contains(document.activeElement)) part.replaceWith(document.adoptNode(next));
    }
    ended.hidden = true;
  } catch {
    ended.hidden = false;
  }
}

setInterval(refresh, seconds * 1000);

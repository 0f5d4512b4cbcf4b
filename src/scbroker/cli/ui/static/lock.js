// Leave the view when the page was locked, so that names and contents do not stay on the screen.
const session = document.getElementById("session");

async function stateOfPage() {
  try {
    const answer = await fetch(session.dataset.state);
    return answer.ok ? await answer.text() : "unknown";
  } catch {
    return "unknown";
  }
}

async function leaveIfLocked() {
  const state = await stateOfPage();
  if (state === "locked") location.replace(session.dataset.start);
  // When the command has ended, nobody says any more that the page is locked.
  document.getElementById("main").hidden = state !== "open";
  document.getElementById("ended").hidden = state !== "unknown";
}

if (session) {
  setInterval(leaveIfLocked, 10_000);
  // A tab that was in the background, or came back from the history.
  addEventListener("pageshow", leaveIfLocked);
  document.addEventListener("visibilitychange", leaveIfLocked);
}

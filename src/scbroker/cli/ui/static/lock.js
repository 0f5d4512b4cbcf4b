// Leave the view when the page was locked, so that names and contents do not stay on the screen.
const session = document.getElementById("session");

async function leaveIfLocked() {
  const answer = await fetch(session.dataset.state).catch(() => null);
  if (answer?.ok && (await answer.text()) === "locked") location.replace(session.dataset.start);
}

if (session) {
  setInterval(leaveIfLocked, 10_000);
  // A tab that was in the background, or came back from the history.
  addEventListener("pageshow", leaveIfLocked);
  document.addEventListener("visibilitychange", leaveIfLocked);
}

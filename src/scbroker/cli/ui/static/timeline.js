// Put new events on top of the timeline: each answer has those after the last one, or none after some seconds.
import { proven } from "./page.js";

const timeline = document.getElementById("timeline");
const away = document.getElementById("away");
const MOST = 200;

async function readNew() {
  const query = new URLSearchParams({ after: timeline.dataset.after });
  if (timeline.dataset.container) query.set("container", timeline.dataset.container);
  const answer = await fetch(`${timeline.dataset.new}?${query}`, { redirect: "manual" });
  const text = await answer.text();
  // After the answer: the command that answers now has answered then. It may say that the page was locked.
  if (!(await proven())) return false;
  away.hidden = answer.ok;
  if (!answer.ok) return false;
  const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("new");
  timeline.dataset.after = fresh.dataset.after;
  if (fresh.childElementCount) document.getElementById("none").hidden = true;
  // If the user reaches a container in two ways, two logs have its events: each is shown once.
  const told = new Set([...timeline.children].map((each) => each.dataset.told));
  const news = [...fresh.children].filter((each) => !told.has(each.dataset.told) && told.add(each.dataset.told));
  timeline.prepend(...news.map((each) => document.adoptNode(each)));
  while (timeline.childElementCount > MOST) timeline.lastElementChild.remove();
  return true;
}

async function follow() {
  for (let pause = 1; timeline.isConnected; ) {
    const read = await readNew().catch(() => proven() && false);
    pause = read ? 1 : Math.min(pause * 2, 30);
    await new Promise((resume) => setTimeout(resume, pause * 250));
  }
}

follow();

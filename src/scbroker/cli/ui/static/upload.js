// Send dropped or chosen files one after the other, with a bar for each.
import { proven } from "./page.js";

const zone = document.getElementById("upload");
const queue = [];
const counts = { all: 0, stored: 0 };
let sending = false;

function row(name) {
  const item = document.createElement("li");
  const [title, bar, said, stop] = ["span", "progress", "span", "button"].map((each) => document.createElement(each));
  title.textContent = name;
  title.className = "name";
  bar.setAttribute("aria-label", `Progress of ${name}`);
  bar.max = 1;
  bar.value = 0;
  said.textContent = "waiting";
  said.className = "said";
  stop.textContent = "Stop";
  stop.type = "button";
  stop.className = "plain small";
  stop.setAttribute("aria-label", `Stop ${name}`);
  item.append(title, bar, said, stop);
  document.getElementById("uploads").append(item);
  return { item, bar, said, stop };
}

function end({ item, bar, said, stop }, stored, text) {
  item.className = stored ? "stored" : "failed";
  if (stored) bar.value = 1;
  else bar.remove();
  stop.remove();
  said.textContent = text;
  counts.stored += stored;
}

async function send(each) {
  if (each.stopped) return;
  if (!(await proven())) return end(each, false, "Not stored: the page does not answer.");
  await new Promise((done) => {
    if (each.stopped) return done();
    const { file, bar, said, stop } = each;
    const request = new XMLHttpRequest();
    const query = new URLSearchParams({ name: file.name, modified: file.lastModified });
    request.open("POST", `${zone.dataset.to}?${query}`);
    request.setRequestHeader("X-Page-Form", zone.dataset.form);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (event) => {
      bar.value = event.total ? event.loaded / event.total : 1;
      // The end of the file is still on its way to the broker when the browser has sent it.
      said.textContent = bar.value < 1 ? `${Math.floor(bar.value * 100)} %` : "storing…";
    };
    request.onloadend = () => {
      const stored = request.status === 200;
      end(each, stored, stored ? "stored" : request.responseText || "Not stored: the page does not answer.");
      done();
    };
    request.onabort = () => {
      request.onloadend = null;
      end(each, false, "stopped");
      done();
    };
    stop.onclick = () => request.abort();
    request.send(file);
  });
}

// For screen readers as well: a file that ends is said, and not each step of its bar.
function say() {
  const { all, stored } = counts;
  document.getElementById("uploaded").textContent = all ? `${stored} of ${all} stored` : "";
}

async function work() {
  if (sending) return;
  sending = true;
  while (queue.length) {
    await send(queue.shift());
    say();
  }
  sending = false;
  // A file that failed stays on the screen with its reason.
  if (counts.stored === counts.all && (await proven())) location.reload();
  else if (counts.stored) document.getElementById("uploaded").append(" · ", again());
}

function again() {
  const link = document.createElement("a");
  link.href = location.href;
  link.textContent = "Show the list with them";
  return link;
}

function add(files, folders = new Set()) {
  for (const file of files) {
    const each = { file, stopped: false, ...row(file.name) };
    counts.all += 1;
    each.stop.onclick = () => {
      each.stopped = true;
      end(each, false, "stopped");
    };
    if (folders.has(file)) {
      each.stopped = true;
      end(each, false, "This is a folder: choose the files in it, or use the command scbroker put.");
    }
    queue.push(each);
  }
  say();
  work();
}

// The browser gives a dropped folder as a file that cannot be read.
function foldersOf(items) {
  const found = [...items].filter((each) => each.kind === "file" && each.webkitGetAsEntry()?.isDirectory);
  return new Set(found.map((each) => each.getAsFile()));
}

if (zone) {
  document.getElementById("files").addEventListener("change", (event) => add(event.target.files));
  // On the whole page: a file that is dropped beside the zone would else replace the page.
  for (const name of ["dragover", "drop"]) addEventListener(name, (event) => event.preventDefault());
  addEventListener("dragover", () => zone.classList.add("over"));
  for (const name of ["dragleave", "drop"]) addEventListener(name, () => zone.classList.remove("over"));
  addEventListener("drop", (event) => {
    const names = new Set([...foldersOf(event.dataTransfer.items)].map((each) => each.name));
    const files = [...event.dataTransfer.files];
    add(files, new Set(files.filter((each) => names.has(each.name))));
  });
  addEventListener("beforeunload", (event) => sending && event.preventDefault());
}

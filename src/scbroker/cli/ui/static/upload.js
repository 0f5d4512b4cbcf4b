// Send dropped or chosen files one after the other, with a bar for each.
const zone = document.getElementById("upload");
const queue = [];
let sending = false;
let failures = 0;

function row(file) {
  const item = document.createElement("li");
  const name = document.createElement("span");
  const bar = document.createElement("progress");
  const said = document.createElement("span");
  name.textContent = file.name;
  bar.setAttribute("aria-label", `Progress of ${file.name}`);
  bar.max = 1;
  bar.value = 0;
  said.textContent = "waiting";
  item.append(name, bar, said);
  document.getElementById("uploads").append(item);
  return { bar, said, item };
}

function send({ file, bar, said, item }) {
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    const query = new URLSearchParams({ name: file.name, modified: file.lastModified });
    request.open("POST", `${zone.dataset.to}?${query}`);
    request.setRequestHeader("X-Page-Form", zone.dataset.form);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (event) => {
      bar.value = event.total ? event.loaded / event.total : 1;
      said.textContent = `${Math.floor(bar.value * 100)} %`;
    };
    request.onloadend = () => {
      const stored = request.status === 200;
      bar.value = stored ? 1 : bar.value;
      item.className = stored ? "stored" : "failed";
      said.textContent = stored ? "stored" : request.responseText || "The page does not answer.";
      if (!stored) failures += 1;
      done();
    };
    request.send(file);
  });
}

async function work() {
  if (sending) return;
  sending = true;
  while (queue.length) await send(queue.shift());
  sending = false;
  // What failed stays on the screen with its reason.
  if (!failures) location.reload();
}

function add(files) {
  for (const file of files) queue.push({ file, ...row(file) });
  work();
}

if (zone) {
  document.getElementById("files").addEventListener("change", (event) => add(event.target.files));
  // On the whole page: a file that is dropped beside the zone would else replace the page.
  for (const name of ["dragover", "drop"]) addEventListener(name, (event) => event.preventDefault());
  addEventListener("dragover", () => zone.classList.add("over"));
  for (const name of ["dragleave", "drop"]) addEventListener(name, () => zone.classList.remove("over"));
  addEventListener("drop", (event) => add(event.dataTransfer.files));
  addEventListener("beforeunload", (event) => sending && event.preventDefault());
}

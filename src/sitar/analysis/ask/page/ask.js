"use strict";
// Shows one image at a time, sends each answer, and has the next image loaded before it is needed.
const token = document.body.dataset.token;
const find = (id) => document.getElementById(id);
const buttons = [...document.querySelectorAll("#choices button")];
let state = null;
let busy = true;
let ahead = null; // the next image; it takes the place of the shown one, so that nothing is kept in the browser's cache

function load(image) {
  const picture = new Image();
  picture.dataset.image = image;
  picture.alt = "The image to answer about";
  picture.addEventListener("load", () => picture.classList.toggle("small", picture.naturalWidth <= 128));
  picture.addEventListener("error", () => {
    picture.dataset.broken = "yes";
    if (picture.id) problem("This image cannot be read any more. Skip it.");
  });
  picture.src = `image/${image}`;
  return picture;
}

function show(next) {
  state = next;
  find("words").textContent = next.words;
  find("count").textContent = `${next.answers} answered, ${next.skipped} skipped`;
  find("name").textContent = next.name ?? "";
  problem(next.refused ?? "");
  const shown = find("picture");
  shown.hidden = next.image === null;
  if (next.image !== null && shown.dataset.image !== String(next.image)) {
    const picture = ahead?.dataset.image === String(next.image) ? ahead : load(next.image);
    picture.id = "picture";
    shown.replaceWith(picture);
    if (picture.dataset.broken) problem("This image cannot be read any more. Skip it.");
  }
  ahead = next.upcoming === null ? null : load(next.upcoming);
  for (const button of [...buttons, find("skip")]) button.disabled = next.image === null;
  find("undo").disabled = next.answers + next.skipped === 0;
}

function problem(text) {
  find("problem").textContent = text;
  find("problem").hidden = text === "";
}

async function send(path, body) {
  if (busy) return;
  busy = true;
  try {
    const headers = { "X-Sitar-Token": token, "Content-Type": "application/json" };
    const reply = await fetch(path, body === undefined ? {} : { method: "POST", headers, body: JSON.stringify(body) });
    show(await reply.json());
  } catch {
    problem("sitar does not answer: it was stopped. Start the same command again; all answers so far are kept.");
  } finally {
    busy = false;
  }
}

const answer = (label) => state && state.image !== null && send("answer", { image: state.image, label });
const undo = () => send("undo", {});

for (const button of buttons) button.addEventListener("click", () => answer(Number(button.dataset.label)));
find("skip").addEventListener("click", () => answer(null));
find("undo").addEventListener("click", undo);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const button = buttons.find((one) => one.dataset.key !== "" && one.dataset.key === event.key.toLowerCase());
  if (button) answer(Number(button.dataset.label));
  else if (event.key === " ") answer(null);
  else if (event.key === "u" || event.key === "Backspace") undo();
  else return;
  event.preventDefault();
});
busy = false;
send("next");

"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const paint = (dark) => {
    root.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
  };
  paint(matchMedia("(prefers-color-scheme: dark)").matches);
  button.addEventListener("click", () => paint(root.dataset.theme !== "dark"));

  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const options = (select, names) => {
    select.replaceChildren(...names.map((name, place) => {
      const option = element("option", "", name);
      option.value = place;
      return option;
    }));
  };
  const tile = (width) => {
    const made = element("div", "tile");
    made.setAttribute("role", "img");
    made.style.width = `${width}px`;
    return made;
  };
  const show = (made, sheet, row, column) => {
    const scale = parseFloat(made.style.width) / sheet.size[1];
    made.classList.toggle("small", sheet.size[1] < 48);
    made.style.height = `${scale * sheet.size[0]}px`;
    made.style.backgroundImage = `url("${sheet.uri}")`;
    made.style.backgroundSize = `${scale * sheet.columns * sheet.pitch[1]}px ${scale * sheet.rows * sheet.pitch[0]}px`;
    made.style.backgroundPosition = `${-scale * column * sheet.pitch[1]}px ${-scale * row * sheet.pitch[0]}px`;
  };
  const percent = (value) => `${(100 * value).toFixed(0)} %`;

  const traversals = (box) => {
    const runs = JSON.parse(document.getElementById(box.dataset.source).textContent);
    const [run, start] = [box.querySelector(".run"), box.querySelector(".start")];
    const cards = box.querySelector(".axes");
    const card = (model, from, axis, place) => {
      const made = element("div", "card axis");
      const facts = [axis.v === null ? "" : `v = ${axis.v.toFixed(2)}`,
                     axis.share === null ? "" : `${percent(axis.share)} of the sensitivity`].filter(Boolean);
      const head = element("h3", "", `axis ${axis.axis}`);
      if (facts.length) head.append(element("small", "", facts.join(", ")));
      const picture = tile(112);
      picture.classList.add("now");
      const chances = element("div", "probabilities");
      const slider = element("input");
      slider.type = "range";
      slider.min = 0;
      slider.max = axis.values.length - 1;
      slider.value = Math.floor(axis.values.length / 2);
      slider.setAttribute("aria-label", `axis ${axis.axis}`);
      const along = from.probabilities[place];
      const bars = along.classes.map((c) => {
        const line = element("div");
        const name = element("span", "name");
        const value = element("span", "probability");
        name.append(element("span", "", model.classes[c]), value);
        const track = element("span", "track");
        const fill = element("span", "fill c0");
        track.append(fill);
        line.append(name, track);
        chances.append(line);
        return [value, fill];
      });
      const move = () => {
        const step = Number(slider.value);
        show(picture, from.sheet, place, step);
        picture.setAttribute("aria-label", `decoded image at ${axis.values[step]}`);
        slider.setAttribute("aria-valuetext", String(axis.values[step]));
        bars.forEach(([value, fill], i) => {
          const chance = along.values[step][i];
          value.textContent = percent(chance);
          fill.style.width = percent(chance).replace(" ", "");
        });
      };
      slider.addEventListener("input", move);
      move();
      const ends = [0, axis.values.length - 1].map((step) => {
        const end = tile(40);
        show(end, from.sheet, place, step);
        end.setAttribute("aria-hidden", "true");
        return end;
      });
      const slide = element("div", "slide");
      slide.append(ends[0], slider, ends[1]);
      made.append(head, picture, chances, slide);
      return made;
    };
    const draw = () => {
      const model = runs[Number(run.value)];
      const from = model.starts[Number(start.value)];
      cards.replaceChildren(...model.axes.map((axis, place) => card(model, from, axis, place)));
      box.querySelector(".left").textContent = model.left > 0 ? `${model.left} more axes are not shown.` : "";
    };
    const choose = () => {
      const names = runs[Number(run.value)].starts.map((one) => one.name);
      options(start, names);
      start.value = Math.min(1, names.length - 1);  // a real sample: the mean of all is a blur
      draw();
    };
    options(run, runs.map((one) => one.label));
    run.value = runs.length - 1;
    run.addEventListener("change", choose);
    start.addEventListener("change", draw);
    choose();
  };

  const mistakes = (box) => {
    const data = JSON.parse(document.getElementById(box.dataset.source).textContent);
    const [by, other] = [box.querySelector(".by"), box.querySelector(".for")];
    options(by, data.runs);
    options(other, data.runs.length > 1 ? data.runs : ["(one run only)"]);
    other.value = data.runs.length > 1 ? data.runs.length - 1 : 0;
    const [more, few] = [box.querySelector(".more"), 24];
    const draw = (all) => {
      const [a, b] = [Number(by.value), Number(other.value)];
      const alone = data.runs.length === 1;
      const shown = data.items.map((item, place) => [item, place])
        .filter(([item]) => item.predicted[a] !== item.label && (alone || item.predicted[b] === item.label));
      box.querySelector(".count").textContent = !alone && a === b ? "Choose two different models." :
        `${shown.length} of the kept images of ${data.split}` + (shown.length ? "" : ": none that one gets wrong and the other right.");
      more.hidden = all || shown.length <= few;
      box.querySelector(".thumbs").replaceChildren(...shown.slice(0, all ? shown.length : few).map(([item, place]) => {
        const figure = element("figure");
        const picture = tile(104);
        show(picture, data.sheet, Math.floor(place / data.sheet.columns), place % data.sheet.columns);
        picture.setAttribute("aria-label", `sample ${item.index}`);
        const caption = element("figcaption", "", data.classes[item.label]);
        caption.append(element("br"), element("span", "bad", `taken for ${data.classes[item.predicted[a]]}`));
        figure.append(picture, caption);
        return figure;
      }));
    };
    by.addEventListener("change", () => draw(false));
    other.addEventListener("change", () => draw(false));
    more.addEventListener("click", () => draw(true));
    draw(false);
  };

  const each = (selector, start) => document.querySelectorAll(selector).forEach((box) => {
    try {
      start(box);
    } catch (error) {  // one part that fails must not take the others with it
      box.prepend(element("p", "bad", "This part of the report is damaged."));
      console.error(error);
    }
  });
  each(".traversals", traversals);
  each(".mistakes", mistakes);
})();

// Keeps a page fresh: when the server says that it has changed, the page is fetched again and its <main> becomes the new one, node by
// node, so that scroll position, focus, selection and what is folded open stay as they are. Nothing here makes markup out of text.
"use strict";

const root = document.documentElement;
const themes = ["auto", "light", "dark"];

function stored() {
  try {
    const theme = localStorage.getItem("callsign-theme");
    return themes.includes(theme) ? theme : "auto";
  } catch {
    return "auto";
  }
}

function show(theme) {
  if (theme === "auto") root.removeAttribute("data-theme");
  else root.setAttribute("data-theme", theme);
}

show(stored()); // Before anything is drawn.

/** Makes `old` what `fresh` is, and keeps every node that can be kept. */
function become(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !isOwn(old, name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value && !isOwn(old, name)) old.setAttribute(name, value);
  }
  if (old === document.activeElement && old.matches("input, select, textarea")) return;
  const next = [...fresh.childNodes];
  const keyed = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let at = old.firstChild;
  for (const node of next) {
    const named = node.nodeType === Node.ELEMENT_NODE && node.id ? keyed.get(node.id) : undefined;
    if (named && named !== at) {
      old.insertBefore(named, at);
      at = named;
    }
    if (at && alike(at, node)) {
      if (at.nodeType === Node.ELEMENT_NODE) become(at, node);
      else if (at.data !== node.data) at.data = node.data;
      at = at.nextSibling;
    } else {
      old.insertBefore(document.importNode(node, true), at);
    }
  }
  while (at) {
    const after = at.nextSibling;
    at.remove();
    at = after;
  }
}

/** What the person has set, and not the server. */
function isOwn(element, name) {
  return (name === "open" && element.localName === "details") || (name === "value" && element.localName === "input" && element.type === "text");
}

function alike(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return false;
  return old.nodeType !== Node.ELEMENT_NODE || old.id === fresh.id;
}

function ready() {
  const main = document.getElementById("main");
  const mark = document.getElementById("live");
  const button = document.getElementById("theme");
  if (button) {
    let theme = stored();
    const label = () => (button.textContent = "Theme: " + theme);
    button.hidden = false;
    label();
    button.addEventListener("click", () => {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length];
      show(theme);
      label();
      try {
        localStorage.setItem("callsign-theme", theme);
      } catch {
        // Then it is forgotten with the page.
      }
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target instanceof Element && event.target.matches("input, select, textarea")) return;
    const field = main.querySelector("form.filters input, form.filters select");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  });
  follow(main);
  if (main.dataset.live) keep(main, mark);
}

/** Logs stay at their end, if that is where they are. */
function follow(main) {
  for (const log of main.querySelectorAll("[data-follow]")) log.scrollTop = log.scrollHeight;
}

function keep(main, mark) {
  let stream = null;
  let fetching = false;
  let again = false;

  const say = (text, fine) => {
    mark.hidden = false;
    mark.textContent = text;
    mark.classList.toggle("off", !fine);
  };

  async function refresh() {
    if (fetching) {
      again = true;
      return;
    }
    fetching = true;
    try {
      const response = await fetch(location.href, { headers: { "Callsign-Fresh": "1" }, redirect: "error", cache: "no-store" });
      if (response.status === 401) {
        close();
        say("logged out", false);
        return;
      }
      if (!response.ok) return;
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("main");
      if (!fresh) return;
      const logs = [...main.querySelectorAll("[data-follow]")];
      const atEnd = new Set(logs.filter((log) => log.scrollHeight - log.scrollTop - log.clientHeight < 24).map((log) => log.id));
      become(main, fresh);
      for (const log of main.querySelectorAll("[data-follow]")) if (atEnd.has(log.id)) log.scrollTop = log.scrollHeight;
    } catch {
      say("not live", false);
    } finally {
      fetching = false;
      if (again) {
        again = false;
        setTimeout(refresh, 0);
      }
    }
  }

  function open() {
    if (stream || document.hidden) return;
    stream = new EventSource(main.dataset.live + "&since=" + encodeURIComponent(main.dataset.beat));
    stream.onopen = () => say("live", true);
    stream.addEventListener("changed", refresh);
    stream.onerror = () => {
      say("not live", false);
      // Closed for good: the daemon may be on its way back.
      if (stream && stream.readyState === EventSource.CLOSED) {
        close();
        setTimeout(open, 3000);
      }
    };
  }

  function close() {
    if (stream) stream.close();
    stream = null;
  }

  // A browser has few connections to one server, and nobody looks at a page that is hidden.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", ready);
else ready();

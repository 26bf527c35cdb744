// The shell: who is logged in, and which page the address names.

import { ApiError, login, logout, me, whoAmI } from "./api.js";
import { h, notice, oneLine, renewTimes } from "./dom.js";
import { comparePage } from "./compare-page.js";
import { gatewayPage } from "./gateway-page.js";
import { playgroundPage } from "./playground-page.js";
import { runList } from "./run-list.js";
import { runPage } from "./run-page.js";
import { sessionList } from "./session-list.js";

const main = document.getElementById("main");
let leave = () => {};

export function go(path) {
  history.pushState(null, "", path);
  show();
}

function show() {
  leave();
  leave = () => {};
  const path = location.pathname;
  const run = path.match(/^\/runs\/([^/]+)$/);
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.getAttribute("href") === (path === "/" && !me.shows.includes("runs") ? "/gateway" : path);
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren();
  main.className = run ? "run" : "list";
  if (run && me.shows.includes("runs")) leave = runPage(main, decodeURIComponent(run[1]), go);
  else if (path === "/compare") leave = comparePage(main);
  else if (path === "/playground") leave = playgroundPage(main);
  else if (path === "/gateway" || !me.shows.includes("runs")) leave = gatewayPage(main);
  else if (path === "/sessions") leave = sessionList(main, go);
  else leave = runList(main, go);
}

function loginForm(problem = "") {
  document.title = "Log in · toolspeak";
  const secret = h("input", { id: "secret", type: "password", autocomplete: "current-password", required: true });
  const error = h("p", { class: "problem", role: "alert" }, problem);
  const form = h("form", { class: "login", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await login(secret.value);
      await start();
    } catch (failure) {
      error.textContent = failure.message;
    }
  } },
  h("h1", {}, "Log in"),
  h("p", {}, "Open the address that the command printed, or enter your key."),
  h("label", { for: "secret" }, "Key or token"), secret, error, h("button", { class: "main", type: "submit" }, "Log in"));
  main.className = "narrow";
  main.replaceChildren(form);
  secret.focus();
}

async function start() {
  try {
    await whoAmI();
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return loginForm();
    main.replaceChildren(h("p", { class: "problem" }, error.message));
    return;
  }
  document.getElementById("who").replaceChildren(
    h("span", { title: `Roles: ${me.roles.join(", ")}` }, oneLine(me.sees === null ? me.principal : `${me.principal} for ${me.sees}`, 60)),
    h("button", { type: "button", class: "plain", onclick: async () => {
      await logout();
      location.assign("/");
    } }, "Log out"));
  const pages = [me.shows.includes("runs") && ["/", "Runs"], me.shows.includes("runs") && ["/sessions", "Sessions"],
    me.shows.includes("gateway") && ["/gateway", "Gateway"], ["/playground", "Playground"]];
  document.querySelector("nav").replaceChildren(...pages.filter(Boolean).map(([href, words]) => h("a", { href }, words)));
  show();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/']");
  if (link && !event.metaKey && !event.ctrlKey && !event.shiftKey && event.button === 0 && !link.target) {
    event.preventDefault();
    go(link.getAttribute("href"));
  }
});
window.addEventListener("popstate", () => show());
setInterval(() => {
  if (!document.hidden) renewTimes();
}, 1000);
document.addEventListener("keydown", (event) => {
  if (event.target.closest?.("input, textarea, select, dialog, [contenteditable]") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const search = document.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  } else if (event.key === "u" && location.pathname !== "/") go("/");
  else if (event.key === "?") notice("j, k: next and previous part · /: search · u: all runs · t: timeline (arrows, +, −, Enter)");
});

const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) {
  history.replaceState(null, "", location.pathname);
  try {
    await login(token);
    await start();
  } catch (error) {
    // It may have been used by this very browser.
    try {
      await whoAmI();
      await start();
    } catch {
      loginForm(error.message);
    }
  }
} else {
  await start();
}

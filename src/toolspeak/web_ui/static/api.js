// The API: requests with the CSRF token, errors as exceptions.

const ROOT = "/api/v1";
let csrf = "";

export class ApiError extends Error {
  constructor(status, detail) {
    super(detail.message);
    this.status = status;
    this.code = detail.code;
    this.by = detail.by ?? "";
  }
}

export const me = { principal: "", roles: [], shows: [], sees: null };
export const may = (role) => me.roles.includes(role);

function url(path, query = {}) {
  const address = new URL(ROOT + path, location.origin);
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") address.searchParams.set(key, value);
  }
  return address;
}

/** A body as JSON, with further fields that are JSON already. */
function jsonOf(body, fields) {
  const parts = Object.entries(fields).map(([name, text]) =>
    // A lone surrogate has no UTF-8: it is written as JSON escapes it.
    `${JSON.stringify(name)}:${text.replace(/\p{Cs}/gu, (each) => `\\u${each.charCodeAt(0).toString(16)}`)}`);
  return parts.length ? `{${[JSON.stringify(body).slice(1, -1), ...parts].join(",")}}` : JSON.stringify(body);
}

async function request(method, path, query, body, fields = {}) {
  const headers = {};
  if (method !== "GET") headers["x-csrf-token"] = csrf;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(url(path, query), { method, headers, body: body === undefined ? undefined : jsonOf(body, fields) });
  } catch {
    throw new ApiError(0, { code: "away", message: "The server does not answer. It may be starting again." });
  }
  if (response.status === 204) return null;
  let content;
  try {
    content = await response.json();
  } catch {
    content = { error: { code: "failed", message: `The server answered with ${response.status}.` } };
  }
  if (!response.ok) throw new ApiError(response.status, content.error ?? { code: "failed", message: `${response.status}` });
  return content;
}

export const get = (path, query) => request("GET", path, query);
/** `fields`: further fields of the body, each as JSON. */
export const post = (path, body = undefined, fields = {}) => request("POST", path, {}, body, fields);
export const runPath = (runId, rest = "") => `/runs/${encodeURIComponent(runId)}${rest}`;
export const eventsUrl = (runId, start) => url(runPath(runId, "/events"), { start });
export const gatewayEventsUrl = () => url("/gateway/events");
export const imageUrl = (runId, seq, place) => url(runPath(runId, `/records/${seq}/image`), { place: JSON.stringify(place) });

function remember(answer) {
  csrf = answer.csrf;
  Object.assign(me, answer);
}

export async function login(secret) {
  remember(await post("/session", { secret }));
}

export async function whoAmI() {
  remember(await get("/session"));
}

export async function logout() {
  await request("DELETE", "/session", {});
}

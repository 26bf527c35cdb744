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

export const me = { principal: "", roles: [] };
export const may = (role) => me.roles.includes(role);

function url(path, query = {}) {
  const address = new URL(ROOT + path, location.origin);
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") address.searchParams.set(key, value);
  }
  return address;
}

async function request(method, path, query, body) {
  const headers = {};
  if (method !== "GET") headers["x-csrf-token"] = csrf;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(url(path, query), { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
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
export const post = (path, body = undefined) => request("POST", path, {}, body);
export const runPath = (runId, rest = "") => `/runs/${encodeURIComponent(runId)}${rest}`;
export const eventsUrl = (runId, start) => url(runPath(runId, "/events"), { start });
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

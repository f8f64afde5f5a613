// Sends requests to the lab's API server with the token of one account.

export interface Reply {
  readonly status: number;
  readonly body: unknown;
}

export class Api {
  constructor(
    readonly server: string,
    readonly ca: string,
    readonly token: string,
  ) {}

  async call(
    method: "GET" | "POST" | "PUT" | "DELETE",
    path: string,
    body?: object,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Reply> {
    return this.#send(method, path, body, { "content-type": "application/json", ...headers });
  }

  /** Sends a JSON merge patch. */
  patch(path: string, body: object): Promise<Reply> {
    return this.#send("PATCH", path, body, { "content-type": "application/merge-patch+json" });
  }

  /** @throws if the server does not return the object */
  async get<T>(path: string): Promise<T> {
    const { status, body } = await this.call("GET", path);
    if (status !== 200) throw new Error(`GET ${path}: ${status} ${JSON.stringify(body).slice(0, 200)}`);
    return body as T;
  }

  async #send(method: string, path: string, body: object | undefined, headers: Record<string, string>): Promise<Reply> {
    const reply = await fetch(`${this.server}${path}`, {
      method,
      headers: { ...headers, authorization: `Bearer ${this.token}` },
      body: body === undefined ? undefined : JSON.stringify(body),
      tls: { ca: this.ca },
    });
    return { status: reply.status, body: await reply.json() };
  }
}

// Lets programs inside a host's network namespace reach an API server outside of it.
import { connect } from "node:net";
import type { CniHost } from "../functional/cni/cni-host.ts";

export interface Forwarder extends Disposable {
  /** The server's address as seen from inside. */
  readonly url: string;
}

export function forwardInto(host: CniHost, serverUrl: string): Forwarder {
  const target = new URL(serverUrl);
  const listener = host.handle.run(() =>
    Bun.listen<{ to?: ReturnType<typeof connect> }>({
      hostname: "127.0.0.1",
      port: 0,
      data: {},
      socket: {
        open(socket) {
          const to = connect(Number(target.port), target.hostname);
          socket.data = { to };
          to.on("data", (chunk: Buffer) => socket.write(chunk));
          to.on("close", () => socket.end());
          to.on("error", () => socket.end());
        },
        data: (socket, chunk) => void socket.data.to?.write(chunk),
        close: (socket) => void socket.data.to?.destroy(),
      },
    }),
  );
  return { url: `https://127.0.0.1:${listener.port}`, [Symbol.dispose]: () => void listener.stop(true) };
}

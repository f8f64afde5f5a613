// Forwards connections from a network namespace to a server outside of it.
import { connect, type Socket } from "node:net";
import type { NetworkNamespace } from "../../src/kernel/index.ts";

export interface Forwarder extends Disposable {
  /** The server's URL inside the namespace. */
  readonly url: string;
  readonly port: number;
}

interface Connection {
  to?: Socket;
  /** Data that the inner socket has not accepted yet; reading from the server is paused meanwhile. */
  rest: Buffer;
}

export function forwardInto(host: { readonly handle: NetworkNamespace }, serverUrl: string): Forwarder {
  const target = new URL(serverUrl);
  const listener = host.handle.run(() =>
    Bun.listen<Connection>({
      hostname: "127.0.0.1",
      port: 0,
      data: { rest: Buffer.alloc(0) },
      socket: {
        open(socket) {
          const to = connect(Number(target.port), target.hostname);
          socket.data = { to, rest: Buffer.alloc(0) };
          to.on("data", (chunk: Buffer) => deliver(socket, chunk));
          to.on("drain", () => socket.resume());
          to.on("close", () => endAfterRest(socket));
          to.on("error", () => socket.end());
        },
        data(socket, chunk) {
          // The chunk is the listener's own buffer, good only until we return.
          if (socket.data.to?.write(Buffer.from(chunk)) === false) socket.pause();
        },
        drain(socket) {
          deliver(socket, Buffer.alloc(0));
          if (socket.data.to?.destroyed === true) endAfterRest(socket);
        },
        close: (socket) => void socket.data.to?.destroy(),
      },
    }),
  );
  const { port } = listener;
  return { url: `${target.protocol}//127.0.0.1:${port}`, port, [Symbol.dispose]: () => void listener.stop(true) };
}

type Inner = Bun.Socket<Connection>;

/** Bun's `write` may accept only part of the data, and returns the number of bytes. */
function deliver(socket: Inner, chunk: Buffer): void {
  const all = socket.data.rest.length === 0 ? chunk : Buffer.concat([socket.data.rest, chunk]);
  const written = all.length === 0 ? 0 : Math.max(0, socket.write(all));
  socket.data.rest = Buffer.from(all.subarray(written));
  if (socket.data.rest.length > 0) socket.data.to?.pause();
  else socket.data.to?.resume();
}

function endAfterRest(socket: Inner): void {
  if (socket.data.rest.length === 0) socket.end();
}

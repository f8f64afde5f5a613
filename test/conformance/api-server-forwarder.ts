// Forwards connections from the machine's loopback to the API server of a lab, which listens only in the lab's network.
import type { Socket } from "bun";
import { NetworkNamespace, withNamespace } from "../../src/kernel/index.ts";
import { FABRIC } from "../../src/lab/fabric.ts";
import { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { apiServerUrl } from "../../src/lab/kubernetes/control-plane.ts";
import type { Lab } from "../../src/lab/lab.ts";

/** One direction of a connection; buffers data that the receiver does not accept yet. */
class Pipe {
  #to: Socket<unknown> | undefined;
  #buffered: Uint8Array[] = [];
  #isEnding = false;
  open(to: Socket<unknown>): void {
    this.#to = to;
    this.flush();
  }
  write(chunk: Uint8Array): void {
    this.#buffered.push(new Uint8Array(chunk)); // copied, because the runtime reuses the chunk's memory
    this.flush();
  }
  end(): void {
    this.#isEnding = true;
    this.flush();
  }
  flush(): void {
    while (this.#to !== undefined && this.#buffered[0] !== undefined) {
      const [next] = this.#buffered;
      const taken = this.#to.write(next);
      if (taken < next.byteLength) {
        this.#buffered[0] = next.subarray(Math.max(0, taken));
        return;
      }
      this.#buffered.shift();
    }
    if (this.#isEnding) this.#to?.end();
  }
}

export function forwardToApiServer(lab: Lab): { readonly url: string } & Disposable {
  const target = new URL(apiServerUrl(new KubernetesCluster(lab).address));
  const namespace = NetworkNamespace.named(lab.folder.namespace(FABRIC));
  const listener = Bun.listen<{ readonly there: Pipe; readonly back: Pipe }>({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      open(socket) {
        const [there, back] = [new Pipe(), new Pipe()];
        socket.data = { there, back };
        back.open(socket);
        // The socket belongs to the namespace in which it is created; for a numeric address, that is before this call returns.
        withNamespace(namespace, () => {
          const port = Number(target.port);
          Bun.connect({
            hostname: target.hostname,
            port,
            socket: {
              open: (to) => there.open(to),
              data: (_, chunk) => back.write(chunk),
              drain: () => there.flush(),
              close: () => back.end(),
            },
          }).catch(() => socket.end());
        });
      },
      data: ({ data }, chunk) => data.there.write(chunk),
      drain: ({ data }) => data.back.flush(),
      close: ({ data }) => data.there.end(),
    },
  });
  return {
    url: `https://127.0.0.1:${listener.port}`,
    [Symbol.dispose]() {
      listener.stop(true);
      namespace[Symbol.dispose]();
    },
  };
}

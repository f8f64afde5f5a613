// Sends packets between pods.
import { PacketProber } from "../../../src/kernel/index.ts";
import { parseAddress } from "../../../src/lib/ip/ip.ts";
import type { Pod } from "./cni-host.ts";

export const PORT = 8080;

export function openProber(pods: readonly Pod[]) {
  const prober = new PacketProber();
  const target = (pod: Pod) => ({ namespace: pod.handle.fd, name: pod.namespace });
  for (const pod of pods) prober.listen(target(pod), "tcp", PORT);
  return {
    /** Returns `<address> reached` for each address at which `to` replied. */
    async reach(from: Pod, to: Pod, addresses: readonly string[], port = PORT): Promise<string[]> {
      const requests = addresses.map((address) => ({
        from: target(from),
        to: parseAddress(address),
        protocol: "tcp" as const,
        port,
      }));
      const outcomes = await prober.probe(requests, { timeoutMs: 3000 });
      return outcomes.map((outcome, i) => {
        const isReached = outcome.result === "reached" && outcome.by === to.namespace;
        return `${addresses[i]} ${isReached ? "reached" : JSON.stringify(outcome)}`;
      });
    },
    [Symbol.dispose]: () => prober[Symbol.dispose](),
  };
}

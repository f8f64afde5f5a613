// Declares `calicoctl explain`.
import type { Command, Grammar } from "../../lib/command-line/command.ts";
import { CONFIG, command, FROM, NAMESPACE, OUTPUT } from "./flags.ts";

const PORTS = { type: "number", value: "PORT", min: 1, max: 65535 } as const;
const BYTES = { type: "number", min: 0, max: 255 } as const;

export const explainGrammar = {
  arguments: [
    { name: "SRC", about: "source: an address, [NAMESPACE/]POD, hep:NAME or node:NAME" },
    { name: "DST", about: "destination, as SRC" },
  ],
  flags: {
    protocol: {
      type: "text",
      value: "PROTOCOL",
      default: "tcp",
      about: "tcp, udp, sctp, icmp or a number",
    },
    port: { ...PORTS, short: "p", about: "destination port; without it, rules with ports do not match" },
    "source-port": { ...PORTS, about: "source port" },
    "icmp-type": { ...BYTES, value: "TYPE", defaultText: "echo request", about: "ICMP type" },
    "icmp-code": { ...BYTES, value: "CODE", default: 0, about: "ICMP code" },
    "ip-version": {
      type: "text",
      value: "VERSION",
      values: ["4", "6"],
      defaultText: "4",
      about: "IP version, if source and destination have both",
    },
    established: { type: "switch", about: "the packet belongs to a connection that was allowed before" },
    ...FROM,
    ...OUTPUT,
    ...CONFIG,
    ...NAMESPACE,
  },
} as const satisfies Grammar;

export const explainCommand: Command = command({
  name: "explain",
  about: "Show whether a packet is allowed, and which rule decides.",
  usage: [
    "<SRC> <DST> [--protocol=<PROTOCOL>] [--port=<PORT>] [--from=<DIR>] [--output=<OUTPUT>] [--config=<CONFIG>] [--namespace=<NS>]",
  ],
  ...explainGrammar,
  details: `The directory of --from may contain Calico resources and the pods, namespaces, service accounts, nodes, network
policies and endpoint slices of Kubernetes.`,
  exitCodes: { 0: "allowed", 1: "could not decide", 3: "denied" },
  examples: [
    { line: "shop/frontend shop/database -p 5432", about: "From one pod to another, TCP port 5432." },
    { line: "10.0.0.5 shop/frontend --protocol icmp", about: "A ping from an address." },
  ],
  load: () => import("../commands/explain.ts"),
});

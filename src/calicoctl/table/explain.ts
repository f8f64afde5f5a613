// Questions about policy.
import type { Command } from "../command.ts";
import { CONFIG, NAMESPACE } from "./flags.ts";

export const explainCommand: Command = {
  name: "explain",
  about: "Tell whether a packet would get through, and which rule decides.",
  usage: [
    "<SRC> <DST> [--protocol=<PROTOCOL>] [--port=<PORT>] [--from=<DIR>] [--output=<OUTPUT>] [--config=<CONFIG>] [--namespace=<NS>]",
  ],
  flags: [
    { name: "protocol", value: "PROTOCOL", about: "tcp (default), udp, sctp, icmp or a number" },
    { name: "port", short: "p", value: "PORT", about: "destination port; without it rules with ports do not match" },
    { name: "source-port", value: "PORT", about: "source port" },
    { name: "icmp-type", value: "TYPE", about: "ICMP type; without it an echo request" },
    { name: "icmp-code", value: "CODE", about: "ICMP code; without it 0" },
    { name: "ip-version", value: "VERSION", about: "4 or 6, for ends that have both; without it 4" },
    { name: "established", about: "the packet belongs to a connection that was allowed before" },
    { name: "from", value: "DIR", about: "work offline on the YAML and JSON files of this folder" },
    { name: "output", short: "o", value: "OUTPUT", about: "text (default) or json" },
    CONFIG,
    NAMESPACE,
  ],
  words: { least: 2, most: 2 },
  details: `SRC and DST are addresses, pods (NAME or NAMESPACE/NAME), host endpoints (hep:NAME) or nodes (node:NAME).
A folder may hold Calico's resources and Kubernetes' pods, namespaces, service accounts, nodes, network policies and
endpoint slices.

Exit code: 0 allowed, 3 denied, 1 could not tell, 2 wrong usage.`,
  load: () => import("../commands/explain.ts"),
};

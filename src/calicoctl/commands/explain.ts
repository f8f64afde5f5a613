// Implements `calicoctl explain`, which evaluates policy for one packet and prints the rule that decides. Exit codes:
// 0 allowed, 3 denied, 1 could not evaluate, 2 usage error.
import { type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { ipProtocolNumber } from "../../lib/ip/ip-protocol.ts";
import { carriesPorts, evaluatePacket, type Packet } from "../../policy/index.ts";
import type { Call } from "../table/flags.ts";
import type { explainGrammar } from "../table/explain.ts";
import { readRejected, rejectedNote } from "../doctor/host-rejected-rules.ts";
import { notesOutsidePolicy } from "../explain/notes.ts";
import { findEnd, pairAddresses } from "../explain/parties.ts";
import { printVerdict } from "../explain/print.ts";
import { loadState } from "../explain/state.ts";
import { UsageError } from "../../lib/command-line/usage-error.ts";
import { verdictColours } from "../command-line/terminal.ts";

const DENIED = 3;

export async function run(call: Call<typeof explainGrammar>): Promise<number> {
  const { flags, args, io } = call;
  const { state, resources } = await loadState(call);
  const namespace = flags.namespace ?? "default";
  const [source, destination] = [findEnd(state, args.SRC, namespace), findEnd(state, args.DST, namespace)];
  const packet = packetOf(flags, pairAddresses(source, destination, versionOf(flags)));
  const query = {
    packet,
    source: source.party,
    destination: destination.party,
    established: flags.established,
  };
  const evaluated = evaluatePacket(state, query);
  const notes = [...evaluated.notes, ...notesOutsidePolicy(state, resources, query, evaluated)];
  const verdict = { ...evaluated, notes };
  io.out(
    flags.output === "json"
      ? `${JSON.stringify({ packet, ...verdict }, undefined, 2)}\n`
      : verdictColours(io)(printVerdict(packet, verdict)),
  );
  const note = flags.from === undefined ? rejectedNote(readRejected()) : undefined;
  if (note !== undefined) io.err(note);
  return verdict.action === "allow" ? 0 : DENIED;
}

type ExplainFlags = Call<typeof explainGrammar>["flags"];

function packetOf(flags: ExplainFlags, ends: Pick<Packet, "source" | "destination">): Packet {
  const isV6 = ipVersion(ends.destination) === 6;
  const word = flags.protocol;
  // Between IPv6 addresses, `icmp` is ICMPv6.
  const protocol = word.toLowerCase() === "icmp" && isV6 ? 58 : ipProtocolNumber(word);
  if (protocol === undefined) throw new UsageError(`--protocol ${word}: want tcp, udp, sctp, icmp or a number`);
  const { port, "source-port": sourcePort } = flags;
  if ((port ?? sourcePort) !== undefined && !carriesPorts(protocol))
    throw new UsageError(`--port and --source-port are not valid for protocol ${word}`);
  if (protocol !== 1 && protocol !== 58) return { ...ends, protocol, sourcePort, destinationPort: port };
  const icmp = { type: flags["icmp-type"] ?? (isV6 ? 128 : 8), code: flags["icmp-code"] };
  return { ...ends, protocol, icmp };
}

const VERSIONS: Readonly<Record<"4" | "6", IpVersion>> = { 4: 4, 6: 6 };

function versionOf({ "ip-version": version }: ExplainFlags): IpVersion | undefined {
  return version === undefined ? undefined : VERSIONS[version];
}

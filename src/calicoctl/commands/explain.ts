// calicoctl explain: would this packet get through, and which rule says so. Exit 0 allowed, 3 denied, 1 could not
// tell, 2 asked wrongly.
import { type IpVersion, ipVersion } from "../../lib/ip.ts";
import { ipProtocolNumber } from "../../lib/ip-protocol.ts";
import { carriesPorts, judge, type Packet } from "../../policy/index.ts";
import type { Call, Flags } from "../command.ts";
import { readRefused, refusedNote } from "../doctor/host-refused.ts";
import { beyondPolicy } from "../explain/notes.ts";
import { findEnd, pairAddresses } from "../explain/parties.ts";
import { printVerdict } from "../explain/print.ts";
import { loadState } from "../explain/state.ts";
import { Failure } from "../failure.ts";
import { verdictColours } from "../terminal.ts";

const DENIED = 3;

export async function run(call: Call): Promise<number> {
  const { words, flags, world } = call;
  const [from = "", to = ""] = words;
  const output = flags.value("output") ?? "text";
  if (output !== "text" && output !== "json") throw usage(`--output is ${output}, want text or json`);
  const { state, resources } = await loadState(call);
  const namespace = flags.value("namespace") ?? "default";
  const [source, destination] = [findEnd(state, from, namespace), findEnd(state, to, namespace)];
  const packet = packetOf(flags, pairAddresses(source, destination, versionOf(flags)));
  const question = {
    packet,
    source: source.party,
    destination: destination.party,
    established: flags.has("established"),
  };
  const judged = judge(state, question);
  const verdict = { ...judged, notes: [...judged.notes, ...beyondPolicy(state, resources, question, judged)] };
  world.out(
    output === "json"
      ? `${JSON.stringify({ packet, ...verdict }, undefined, 2)}\n`
      : verdictColours(world)(printVerdict(packet, verdict)),
  );
  const note = flags.value("from") === undefined ? refusedNote(readRefused()) : undefined;
  if (note !== undefined) world.err(note);
  return verdict.action === "allow" ? 0 : DENIED;
}

function packetOf(flags: Flags, ends: Pick<Packet, "source" | "destination">): Packet {
  const isV6 = ipVersion(ends.destination) === 6;
  const word = flags.value("protocol") ?? "tcp";
  // People say icmp and mean the one of the family.
  const protocol = word.toLowerCase() === "icmp" && isV6 ? 58 : ipProtocolNumber(word);
  if (protocol === undefined) throw usage(`--protocol is ${word}, want tcp, udp, sctp, icmp or a number`);
  const destinationPort = portOf(flags, "port");
  const sourcePort = portOf(flags, "source-port");
  if ((destinationPort ?? sourcePort) !== undefined && !carriesPorts(protocol))
    throw usage(`--port has no meaning for protocol ${word}`);
  if (protocol !== 1 && protocol !== 58) {
    return { ...ends, protocol, ...defined("sourcePort", sourcePort), ...defined("destinationPort", destinationPort) };
  }
  const echo = isV6 ? 128 : 8;
  const icmp = { type: numberOf(flags, "icmp-type", 255) ?? echo, code: numberOf(flags, "icmp-code", 255) ?? 0 };
  return { ...ends, protocol, icmp };
}

function portOf(flags: Flags, name: string): number | undefined {
  const port = numberOf(flags, name, 65535);
  if (port === 0) throw usage(`--${name} is 0, want 1 to 65535`);
  return port;
}

function numberOf(flags: Flags, name: string, most: number): number | undefined {
  const text = flags.value(name);
  if (text === undefined) return undefined;
  const number = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (!(number <= most)) throw usage(`--${name} is ${text}, want a number up to ${most}`);
  return number;
}

function versionOf(flags: Flags): IpVersion | undefined {
  const text = flags.value("ip-version");
  if (text === undefined) return undefined;
  if (text !== "4" && text !== "6") throw usage(`--ip-version is ${text}, want 4 or 6`);
  return text === "4" ? 4 : 6;
}

const defined = <N extends string>(name: N, value: number | undefined): { readonly [P in N]?: number } =>
  (value === undefined ? {} : { [name]: value }) as { readonly [P in N]?: number };

const usage = (message: string): Failure => new Failure(message, { exitCode: 2 });

// Lists, adds and deletes routing policy rules (ip-rule(8)) over rtnetlink.
import { type Cidr, cidrAddress, cidrLength, type IpVersion } from "../../lib/ip/ip.ts";
import { type NetlinkMessage, prefixOf } from "../netlink/netlink-reader.ts";
import type { NetlinkSocket } from "../netlink/netlink-socket.ts";
import { type NetlinkWriter, NLM_F_CREATE, NLM_F_EXCL } from "../netlink/netlink-writer.ts";
import { AF_INET, AF_INET6 } from "../sys/sys.ts";

const RTM_NEWRULE = 32;
const RTM_DELRULE = 33;
const RTM_GETRULE = 34;
const FRA_DST = 1;
const FRA_SRC = 2;
const FRA_IIFNAME = 3;
const FRA_GOTO = 4;
const FRA_PRIORITY = 6;
const FRA_FWMARK = 10;
const FRA_SUPPRESS_PREFIXLEN = 14;
const FRA_TABLE = 15;
const FRA_FWMASK = 16;
const FRA_OIFNAME = 17;
const FRA_PROTOCOL = 21;
const FIB_RULE_INVERT = 2;
const HEADER = 12; // fib_rule_hdr
const ACTIONS = ["unspec", "table", "goto", "nop", "", "", "blackhole", "unreachable", "prohibit"] as const;

export interface Rule {
  readonly version: IpVersion;
  readonly priority: number;
  readonly action: Exclude<(typeof ACTIONS)[number], "" | "unspec">;
  readonly table?: number;
  /** Action "goto": the priority of the next rule. */
  readonly goto?: number;
  readonly source?: Cidr;
  readonly destination?: Cidr;
  readonly incoming?: string;
  readonly outgoing?: string;
  readonly mark?: { readonly value: number; readonly mask: number };
  /** The rule applies to packets that do not match. */
  readonly inverted?: boolean;
  /** Routes whose prefix length is at most this are ignored. */
  readonly suppressPrefixLength?: number;
  readonly protocol?: number;
}

export interface Rules {
  list(version: IpVersion): Rule[];
  add(rule: Rule): void;
  delete(rule: Rule): void;
}

export class NetlinkRules implements Rules {
  readonly #socket: NetlinkSocket;
  constructor(socket: NetlinkSocket) {
    this.#socket = socket;
  }

  list(version: IpVersion): Rule[] {
    const body = (w: NetlinkWriter): void => {
      w.putU8(version === 4 ? AF_INET : AF_INET6);
      w.putZero(HEADER - 1);
    };
    return this.#socket.dump({ operation: `list IPv${version} rules`, type: RTM_GETRULE, body }, parseRule);
  }
  add(rule: Rule): void {
    this.#request("add", RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, rule);
  }
  delete(rule: Rule): void {
    this.#request("delete", RTM_DELRULE, 0, rule);
  }

  #request(verb: string, type: number, flags: number, rule: Rule): void {
    const table = rule.table === undefined ? "" : ` for table ${rule.table}`;
    const operation = `${verb} IPv${rule.version} rule ${rule.priority}${table}`;
    this.#socket.request({ operation, type, flags, body: (w) => writeRule(w, rule) });
  }
}

function writeRule(w: NetlinkWriter, rule: Rule): void {
  const table = rule.table ?? 0;
  w.putU8(rule.version === 4 ? AF_INET : AF_INET6);
  w.putU8(rule.destination === undefined ? 0 : cidrLength(rule.destination));
  w.putU8(rule.source === undefined ? 0 : cidrLength(rule.source));
  w.putU8(0);
  w.putU8(table < 256 ? table : 0);
  w.putZero(2);
  w.putU8(ACTIONS.indexOf(rule.action));
  w.putU32(rule.inverted === true ? FIB_RULE_INVERT : 0);
  if (rule.destination !== undefined) w.address(FRA_DST, cidrAddress(rule.destination));
  if (rule.source !== undefined) w.address(FRA_SRC, cidrAddress(rule.source));
  if (rule.incoming !== undefined) w.string(FRA_IIFNAME, rule.incoming);
  if (rule.outgoing !== undefined) w.string(FRA_OIFNAME, rule.outgoing);
  if (rule.goto !== undefined) w.u32(FRA_GOTO, rule.goto);
  w.u32(FRA_PRIORITY, rule.priority);
  if (rule.mark !== undefined) {
    w.u32(FRA_FWMARK, rule.mark.value);
    w.u32(FRA_FWMASK, rule.mark.mask);
  }
  if (rule.suppressPrefixLength !== undefined) w.i32(FRA_SUPPRESS_PREFIXLEN, rule.suppressPrefixLength);
  if (rule.table !== undefined) w.u32(FRA_TABLE, rule.table);
  if (rule.protocol !== undefined) w.u8(FRA_PROTOCOL, rule.protocol);
}

type Draft = { -readonly [K in keyof Rule]: Rule[K] };

export function parseRule(message: NetlinkMessage): Rule | undefined {
  const family = message.u8(0);
  const action = ACTIONS[message.u8(7)];
  if (family !== AF_INET && family !== AF_INET6) return undefined;
  if (action === undefined || action === "" || action === "unspec") return undefined;
  const rule: Draft = { version: family === AF_INET ? 4 : 6, priority: 0, action };
  if ((message.u32(8) & FIB_RULE_INVERT) !== 0) rule.inverted = true;
  let mark: number | undefined;
  let mask: number | undefined;
  const a = message.attributes(HEADER);
  while (a.next())
    switch (a.type) {
      case FRA_DST:
        rule.destination = prefixOf(a.address(), message.u8(1));
        break;
      case FRA_SRC:
        rule.source = prefixOf(a.address(), message.u8(2));
        break;
      case FRA_IIFNAME:
        rule.incoming = a.string();
        break;
      case FRA_OIFNAME:
        rule.outgoing = a.string();
        break;
      case FRA_GOTO:
        rule.goto = a.u32();
        break;
      case FRA_PRIORITY:
        rule.priority = a.u32();
        break;
      case FRA_FWMARK:
        mark = a.u32();
        break;
      case FRA_FWMASK:
        mask = a.u32();
        break;
      case FRA_SUPPRESS_PREFIXLEN:
        if (a.i32() >= 0) rule.suppressPrefixLength = a.i32();
        break;
      case FRA_TABLE:
        if (action === "table") rule.table = a.u32();
        break;
      case FRA_PROTOCOL:
        rule.protocol = a.u8();
        break;
    }
  if (mark !== undefined || mask !== undefined) rule.mark = { value: mark ?? 0, mask: mask ?? 0xffffffff };
  return rule;
}

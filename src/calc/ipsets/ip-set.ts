// What an IP set holds and how it is named. Equal contents have equal names, so that rules of many policies share a set.
import { type Selector, printSelector, uniqueId } from "../../model/index.ts";
import type { IpSetId, IpSetType } from "../messages.ts";

/** The protocol of a named port as a set's name spells it. */
export type NamedPortProtocol = "tcp" | "udp" | "sctp" | "any";

export type IpSetContent =
  | { readonly kind: "selector"; readonly selector: string }
  | {
      readonly kind: "namedPort";
      readonly selector: string;
      readonly protocol: NamedPortProtocol;
      readonly port: string;
    }
  /** `namespace/name`; with its ports, or its addresses alone. */
  | { readonly kind: "service"; readonly service: string; readonly ports: boolean };

export interface IpSetSpec {
  readonly id: IpSetId;
  readonly type: IpSetType;
  readonly content: IpSetContent;
}

/** The addresses a selector selects. */
export function selectorSet(selector: Selector): IpSetSpec {
  const text = printSelector(selector);
  return { id: uniqueId("s", text), type: "net", content: { kind: "selector", selector: text } };
}

/** The sets of addresses and numbers of ports, by the name of the port, on what a selector selects. */
export function namedPortSets(selector: Selector, protocol: NamedPortProtocol): (port: string) => IpSetSpec {
  const text = printSelector(selector);
  const selectorSetId = uniqueId("s", text);
  return (port) => ({
    id: uniqueId("n", `${selectorSetId},${protocol},${port}`),
    type: "ipAndPort",
    content: { kind: "namedPort", selector: text, protocol, port },
  });
}

export function serviceSet(service: string, ports: boolean): IpSetSpec {
  return {
    id: uniqueId(ports ? "svc" : "svcnoport", service),
    type: ports ? "ipAndPort" : "net",
    content: { kind: "service", service, ports },
  };
}

/** Who hears of members. A set that goes takes its members along without a word. */
export interface MemberListener {
  onMemberAdded(id: IpSetId, member: string): void;
  onMemberRemoved(id: IpSetId, member: string): void;
}

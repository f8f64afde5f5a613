// Defines the content and the ID of an IP set. Equal definitions have equal IDs, so that the rules of many policies share
// one set.
import { labelRestrictions, NAMESPACE_LABEL, type ParsedSelector, uniqueId } from "../../model/index.ts";
import type { IpSetId, IpSetType } from "../messages.ts";

/** The protocol of a named port, as spelled in the set's ID. */
export type NamedPortProtocol = "tcp" | "udp" | "sctp" | "any";

export type IpSetContent =
  /** If `networkSetsOf` is set, the set contains no network sets of other namespaces than this one. */
  | { readonly kind: "selector"; readonly selector: ParsedSelector; readonly networkSetsOf?: string }
  | {
      readonly kind: "namedPort";
      readonly selector: ParsedSelector;
      readonly protocol: NamedPortProtocol;
      readonly port: string;
    }
  /** `service` is `namespace/name`. If `ports` is false, the set contains only addresses. */
  | { readonly kind: "service"; readonly service: string; readonly ports: boolean };

export interface IpSetSpec {
  readonly id: IpSetId;
  readonly type: IpSetType;
  readonly content: IpSetContent;
}

/** The set of all addresses of the selected endpoints and network sets. */
export function selectorSet(selector: ParsedSelector): IpSetSpec {
  return { id: selector.id, type: "net", content: { kind: "selector", selector } };
}

/** The set of addresses and port numbers of a named port on the selected endpoints. */
export function namedPortSet(selector: ParsedSelector, protocol: NamedPortProtocol, port: string): IpSetSpec {
  return {
    id: uniqueId("n", `${selector.id},${protocol},${port}`),
    type: "ipAndPort",
    content: { kind: "namedPort", selector, protocol, port },
  };
}

export function serviceSet(service: string, ports: boolean): IpSetSpec {
  return {
    id: uniqueId(ports ? "svc" : "svcnoport", service),
    type: ports ? "ipAndPort" : "net",
    content: { kind: "service", service, ports },
  };
}

/**
 * Returns the same set without the network sets and services of other namespaces: `set` itself if it contains none, and
 * undefined if it contains nothing else.
 */
export function withoutForeignMembers(set: IpSetSpec, namespace: string): IpSetSpec | undefined {
  const { content } = set;
  if (content.kind === "namedPort") return set; // only endpoints have named ports
  if (content.kind === "service") return content.service.startsWith(`${namespace}/`) ? set : undefined;
  const { selector } = content;
  const namespaces = labelRestrictions(selector.tree).get(NAMESPACE_LABEL)?.values;
  if (namespaces?.every((each) => each === namespace) === true) return set;
  return {
    id: uniqueId("s", `${selector.id},network sets of ${namespace}`),
    type: "net",
    content: { kind: "selector", selector, networkSetsOf: namespace },
  };
}

/** Receives the changes of members. No removals are emitted for the members of a set that is removed itself. */
export interface MemberListener {
  onMemberAdded(id: IpSetId, member: string): void;
  onMemberRemoved(id: IpSetId, member: string): void;
}

// The host endpoints a node should have: one for all its interfaces, and one or more per template that selects it. Pure.
import { createHash } from "node:crypto";
import {
  type Cidr,
  cidrContains,
  hostCidr,
  type IpAddress,
  tryParseAddress,
  tryParseNetwork,
  tryParseCidr,
} from "../../lib/ip.ts";
import {
  API_VERSION,
  type Labels,
  matchesSelector,
  type Resource,
  type SpecOf,
  tryParseSelector,
} from "../../model/index.ts";
import type { HostEndpointSettings, HostEndpointTemplate } from "../configuration.ts";

export const CREATED_BY = "projectcalico.org/created-by";
export const CREATOR = "calico-kube-controllers";
const PROFILE = "projectcalico-default-allow";
const SUFFIX = "auto-hep";
const MAX_NAME = 253;
type NodeSpec = SpecOf<"Node">;

export function desiredHostEndpoints(node: Resource, settings: HostEndpointSettings): readonly Resource[] {
  if (settings.autoCreate !== "Enabled") return [];
  const wanted: Resource[] = [];
  if (settings.createDefaultHostEndpoint !== "Disabled")
    wanted.push(hostEndpoint(node, [], { interfaceName: "*", addresses: allAddresses(node) }));
  for (const template of settings.templates ?? []) wanted.push(...fromTemplate(node, template));
  return wanted;
}

function fromTemplate(node: Resource, template: HostEndpointTemplate): readonly Resource[] {
  if (!selects(template.nodeSelector, node.metadata.labels ?? {})) return [];
  const { generateName = "", interfacePattern } = template;
  const cidrs = (template.interfaceCIDRs ?? []).flatMap((text) => tryParseCidr(text) ?? []);
  const within = (addresses: readonly IpAddress[]) =>
    cidrs.length === 0
      ? addresses
      : addresses.filter((address) => cidrs.some((cidr) => cidrContains(cidr, hostCidr(address) as Cidr)));
  if (interfacePattern === undefined || interfacePattern === "") {
    const addresses = within(allAddresses(node));
    return addresses.length === 0 ? [] : [hostEndpoint(node, [generateName], { addresses, template })];
  }
  const pattern = patternOf(interfacePattern);
  return ((node.spec as NodeSpec).interfaces ?? []).flatMap(({ name = "", addresses: texts = [] }) => {
    if (pattern === undefined || !pattern.test(name)) return [];
    const addresses = within(parsed(texts));
    if (cidrs.length > 0 && addresses.length === 0) return [];
    return [hostEndpoint(node, [generateName, name], { interfaceName: name, addresses, template })];
  });
}

function hostEndpoint(
  node: Resource,
  words: readonly string[],
  given: {
    readonly interfaceName?: string;
    readonly addresses: readonly IpAddress[];
    readonly template?: HostEndpointTemplate;
  },
): Resource {
  const { interfaceName, addresses, template } = given;
  const labels = { ...node.metadata.labels, ...template?.labels, [CREATED_BY]: CREATOR };
  const annotations = template?.annotations ?? {};
  return {
    apiVersion: API_VERSION,
    kind: "HostEndpoint",
    metadata: {
      name: nameOf([node.metadata.name, ...words]),
      labels,
      ...(Object.keys(annotations).length === 0 ? {} : { annotations }),
    },
    spec: {
      node: node.metadata.name,
      ...(interfaceName === undefined ? {} : { interfaceName }),
      ...(addresses.length === 0 ? {} : { expectedIPs: addresses }),
      profiles: [PROFILE],
    },
  };
}

/** `<node>-<template>-<interface>-auto-hep`; one that is too long becomes a hash of itself. */
function nameOf(words: readonly string[]): string {
  const name = [...words, SUFFIX].join("-");
  if (name.length <= MAX_NAME) return name;
  const hash = createHash("sha256").update(name).digest("base64url").toLowerCase().replaceAll(/[-_.]/g, "");
  return `${hash}-${SUFFIX}`;
}

/** Every address the node is known by, each once, tunnels before the interfaces. */
function allAddresses(node: Resource): readonly IpAddress[] {
  const {
    bgp,
    ipv4VXLANTunnelAddr,
    ipv6VXLANTunnelAddr,
    wireguard,
    addresses = [],
    interfaces = [],
  } = node.spec as NodeSpec;
  const texts = [
    bgp?.ipv4Address,
    bgp?.ipv6Address,
    bgp?.ipv4IPIPTunnelAddr,
    ipv4VXLANTunnelAddr,
    ipv6VXLANTunnelAddr,
    wireguard?.interfaceIPv4Address,
    wireguard?.interfaceIPv6Address,
    ...addresses.filter(({ type }) => type === "InternalIP").map(({ address }) => address),
    ...interfaces.flatMap(({ addresses: own = [] }) => own),
  ];
  return parsed(texts);
}

const parsed = (texts: readonly (string | undefined)[]): readonly IpAddress[] => [
  ...new Set(
    texts.flatMap((text) =>
      text === undefined ? [] : (tryParseAddress(text) ?? tryParseNetwork(text)?.address ?? []),
    ),
  ),
];

function selects(selector: string | undefined, labels: Labels): boolean {
  const parsedSelector = tryParseSelector(selector === undefined || selector === "" ? "all()" : selector);
  return parsedSelector !== undefined && matchesSelector(parsedSelector, labels);
}

function patternOf(text: string): RegExp | undefined {
  try {
    return new RegExp(text);
  } catch {
    return undefined;
  }
}

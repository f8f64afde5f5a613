// Computes the host endpoints of a node: one for all its interfaces, and one or more for each template that selects the node.
// Pure.
import { createHash } from "node:crypto";
import { type Cidr, cidrContains, hostCidr, type IpAddress, tryParseCidr } from "../../lib/ip/ip.ts";
import {
  API_VERSION,
  ignoreUnreadable,
  type Labels,
  matchesSelector,
  type Node,
  readNode,
  type Resource,
  tunnelAddresses,
  tryParseSelector,
} from "../../model/index.ts";
import type { HostEndpointSettings, HostEndpointTemplate } from "../configuration.ts";

export const CREATED_BY = "projectcalico.org/created-by";
export const CREATOR = "calico-kube-controllers";
const PROFILE = "projectcalico-default-allow";
const SUFFIX = "auto-hep";
const MAX_NAME = 253;

export function desiredHostEndpoints(resource: Resource, settings: HostEndpointSettings): readonly Resource[] {
  if (settings.autoCreate !== "Enabled") return [];
  const node = readNode(resource, ignoreUnreadable);
  const desired: Resource[] = [];
  if (settings.createDefaultHostEndpoint !== "Disabled")
    desired.push(hostEndpoint(node, [], { interfaceName: "*", addresses: allAddresses(node) }));
  for (const template of settings.templates ?? []) desired.push(...fromTemplate(node, template));
  return desired;
}

function fromTemplate(node: Node, template: HostEndpointTemplate): readonly Resource[] {
  if (!selects(template.nodeSelector, node.labels)) return [];
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
  return node.interfaces.flatMap(({ name, addresses: all }) => {
    if (pattern === undefined || !pattern.test(name)) return [];
    const addresses = within([...new Set(all)]);
    if (cidrs.length > 0 && addresses.length === 0) return [];
    return [hostEndpoint(node, [generateName, name], { interfaceName: name, addresses, template })];
  });
}

function hostEndpoint(
  node: Node,
  nameParts: readonly string[],
  fields: {
    readonly interfaceName?: string;
    readonly addresses: readonly IpAddress[];
    readonly template?: HostEndpointTemplate;
  },
): Resource {
  const { interfaceName, addresses, template } = fields;
  const labels = { ...node.labels, ...template?.labels, [CREATED_BY]: CREATOR };
  const annotations = template?.annotations ?? {};
  return {
    apiVersion: API_VERSION,
    kind: "HostEndpoint",
    metadata: {
      name: nameOf([node.name, ...nameParts]),
      labels,
      ...(Object.keys(annotations).length === 0 ? {} : { annotations }),
    },
    spec: {
      node: node.name,
      ...(interfaceName === undefined ? {} : { interfaceName }),
      ...(addresses.length === 0 ? {} : { expectedIPs: addresses }),
      profiles: [PROFILE],
    },
  };
}

/** `<node>-<template>-<interface>-auto-hep`; a name that is too long is replaced by its hash. */
function nameOf(nameParts: readonly string[]): string {
  const name = [...nameParts, SUFFIX].join("-");
  if (name.length <= MAX_NAME) return name;
  const hash = createHash("sha256").update(name).digest("base64url").toLowerCase().replaceAll(/[-_.]/g, "");
  return `${hash}-${SUFFIX}`;
}

/** All addresses of the node without duplicates; tunnel addresses before addresses of interfaces. */
function allAddresses(node: Node): readonly IpAddress[] {
  const addresses = [
    node.networks[4]?.address,
    node.networks[6]?.address,
    ...tunnelAddresses(node).map(({ address }) => address),
    ...node.addresses.filter(({ type }) => type === "InternalIP").map(({ network }) => network.address),
    ...node.interfaces.flatMap((each) => each.addresses),
  ];
  return [...new Set(addresses.filter((address) => address !== undefined))];
}

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

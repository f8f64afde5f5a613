// Defines the kind BGPConfiguration: BGP settings of the cluster (`default`) or of one node (`node.<name>`).
import { isCommunity, isInterfacePattern } from "../validation/formats.ts";
import {
  address,
  anyCase,
  asNumber,
  choice,
  duration,
  field,
  flag,
  integer,
  limited,
  list,
  maskedNetwork,
  matching,
  object,
  pointer,
  portNumber,
  preset,
  secretKeyRef,
  subdomain,
  text,
  initial,
} from "./fields.ts";
import { defineKind, type ResourceFor, type RuleContext, type Stored } from "./kind.ts";

const serviceBlocks = () => field(list(object({ cidr: field(maskedNetwork()) })));
const routePriority = () => pointer(integer(1, 2147483646));

const spec = object({
  logSeverityScreen: preset(anyCase("Trace", "Debug", "Info", "Warning", "Error", "Fatal"), "Info"),
  nodeToNodeMeshEnabled: pointer(flag()),
  asNumber: pointer(asNumber()),
  serviceLoadBalancerIPs: serviceBlocks(),
  serviceExternalIPs: serviceBlocks(),
  serviceClusterIPs: serviceBlocks(),
  serviceLoadBalancerAggregation: initial(choice("Enabled", "Disabled"), "Enabled"),
  communities: field(list(object({ name: subdomain(), value: limited(40) }), 500)),
  prefixAdvertisements: field(list(object({ cidr: maskedNetwork(), communities: list(text(), 50) }), 500)),
  listenPort: field(portNumber()),
  nodeMeshPassword: pointer(object({ secretKeyRef: pointer(secretKeyRef()) })),
  nodeMeshMaxRestartTime: pointer(duration()),
  bindMode: pointer(choice("None", "NodeIP")),
  ignoredInterfaces: field(
    list(
      matching(
        (name) => name !== "*" && isInterfacePattern(name),
        "want an interface name, which may contain * and other characters",
      ),
    ),
  ),
  localWorkloadPeeringIPV4: field(address(4)),
  localWorkloadPeeringIPV6: field(address(6)),
  programClusterRoutes: pointer(choice("Enabled", "Disabled", "EnabledIPIPOnly", "EnabledNoEncapOnly")),
  ipv4NormalRoutePriority: routePriority(),
  ipv6NormalRoutePriority: routePriority(),
});
export type BGPConfigurationResource = ResourceFor<"BGPConfiguration", typeof spec>;
type Spec = Stored<typeof spec>;

const CLUSTER_WIDE = [
  "nodeToNodeMeshEnabled",
  "asNumber",
  "serviceLoadBalancerIPs",
  "serviceExternalIPs",
  "serviceClusterIPs",
  "nodeMeshPassword",
  "nodeMeshMaxRestartTime",
] as const;

export default defineKind({
  kind: "BGPConfiguration",
  description: "BGP settings of the cluster (name: default) or of one node (name: node.<name>).",
  spec,
  rules: (config, context) => {
    const { metadata, report } = context;
    if (metadata.name !== "default")
      for (const name of CLUSTER_WIDE)
        if (config[name] !== undefined)
          report(
            [name],
            config[name],
            "applies to the whole cluster: set it in the BGPConfiguration with the name default",
          );
    if (config.nodeToNodeMeshEnabled === false)
      for (const name of ["nodeMeshPassword", "nodeMeshMaxRestartTime"] as const)
        if (config[name] !== undefined) report([name], undefined, "has no effect if nodeToNodeMeshEnabled is false");
    if (context.mode !== "stored") checkServiceBlocks(config, context);
    checkCommunities(config, context);
  },
});

/** Older versions also stored single addresses here. */
function checkServiceBlocks(config: Spec, { report }: RuleContext): void {
  for (const name of ["serviceLoadBalancerIPs", "serviceExternalIPs", "serviceClusterIPs"] as const)
    for (const [i, { cidr }] of (config[name] ?? []).entries())
      if (cidr !== undefined && !cidr.includes("/"))
        report([name, i, "cidr"], cidr, `want a CIDR such as ${cidr}/${cidr.includes(":") ? 128 : 32}`);
}

function checkCommunities(config: Spec, { report }: RuleContext): void {
  const named = new Set<string>();
  for (const [i, community] of (config.communities ?? []).entries()) {
    named.add(community.name);
    if (!isCommunity(community.value)) report(["communities", i, "value"], community.value, COMMUNITY_WANTED);
  }
  if (config.communities !== undefined && config.prefixAdvertisements === undefined)
    report(["communities"], undefined, "are defined, but no prefixAdvertisements use them");
  for (const [i, advertisement] of (config.prefixAdvertisements ?? []).entries())
    for (const [j, community] of advertisement.communities.entries())
      if (!isCommunity(community) && !named.has(community))
        report(
          ["prefixAdvertisements", i, "communities", j],
          community,
          `${COMMUNITY_WANTED}, or a name from communities`,
        );
}
const COMMUNITY_WANTED = "want a community: 65000:100 (16 bits each) or 65000:1:2 (32 bits each)";

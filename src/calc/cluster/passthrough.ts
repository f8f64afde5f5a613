// What the dataplane wants to know as it stands: pools, WireGuard peers, the global BGP configuration, services, and
// the Kubernetes namespaces and service accounts that hide in profiles.
import type { Cidr } from "../../lib/ip.ts";
import type { Labels, Pool, Resource, ResourceKey, Wireguard } from "../../model/index.ts";
import {
  type BgpConfigurationSpec,
  type ProfileSpec,
  type ServiceSpec,
  type ServiceStatus,
  specOf,
} from "../resources.ts";
import type { EventSequencer } from "../sequencer.ts";

export class Passthrough {
  readonly #out: EventSequencer;
  readonly #bgp = new Map<string, unknown>();

  constructor(out: EventSequencer) {
    this.#out = out;
  }

  setPool(cidr: Cidr, pool: Pool | undefined): void {
    const id = cidr.replace("/", "-");
    if (pool === undefined) this.#out.pools.remove(id, { type: "poolRemove", id });
    else
      this.#out.pools.update(id, {
        type: "poolUpdate",
        id,
        cidr,
        masquerade: pool.masquerade,
        ipipMode: pool.ipipMode,
        vxlanMode: pool.vxlanMode,
        allowedUses: pool.allowedUses,
      });
  }

  setWireguard(hostname: string, peer: Wireguard | undefined): void {
    const families = [
      { ipVersion: 4, publicKey: peer?.publicKey ?? "", interfaceAddr: peer?.interfaceIpv4Addr ?? "" },
      { ipVersion: 6, publicKey: peer?.publicKeyV6 ?? "", interfaceAddr: peer?.interfaceIpv6Addr ?? "" },
    ] as const;
    for (const { ipVersion, publicKey, interfaceAddr } of families) {
      const key = `${ipVersion} ${hostname}`;
      if (publicKey === "") this.#out.wireguard.remove(key, { type: "wireguardRemove", ipVersion, hostname });
      else
        this.#out.wireguard.update(key, {
          type: "wireguardUpdate",
          ipVersion,
          hostname,
          publicKey,
          interfaceAddr,
        });
    }
  }

  setBgpConfiguration(name: string, resource: Resource | undefined): void {
    if (name !== "default") return;
    const spec = resource === undefined ? undefined : specOf<BgpConfigurationSpec>(resource);
    const cidrs = (list: readonly { readonly cidr?: string }[] | undefined) =>
      (list ?? []).map(({ cidr = "" }) => cidr);
    const message = {
      type: "globalBgpConfigUpdate",
      serviceClusterCidrs: cidrs(spec?.serviceClusterIPs),
      serviceExternalCidrs: cidrs(spec?.serviceExternalIPs),
      serviceLoadBalancerCidrs: cidrs(spec?.serviceLoadBalancerIPs),
      localWorkloadPeeringIpV4: spec?.localWorkloadPeeringIPV4 ?? "",
      localWorkloadPeeringIpV6: spec?.localWorkloadPeeringIPV6 ?? "",
    } as const;
    if (Bun.deepEquals(this.#bgp.get(name), message, true)) return;
    if (resource === undefined && !this.#bgp.has(name)) return;
    this.#bgp.set(name, message);
    this.#out.setBgpConfig(message);
  }

  setService(key: ResourceKey, resource: Resource | undefined): void {
    const { name, namespace = "" } = key;
    const id = `${namespace}/${name}`;
    if (resource === undefined) {
      this.#out.services.remove(id, { type: "serviceRemove", name, namespace });
      return;
    }
    const spec = specOf<ServiceSpec>(resource);
    const ingress = ((resource.status ?? {}) as ServiceStatus).loadBalancer?.ingress ?? [];
    const single = spec.clusterIP === undefined || spec.clusterIP === "" ? [] : [spec.clusterIP];
    this.#out.services.update(id, {
      type: "serviceUpdate",
      name,
      namespace,
      serviceType: spec.type ?? "",
      clusterIps: spec.clusterIPs !== undefined && spec.clusterIPs.length > 0 ? spec.clusterIPs : single,
      loadBalancerIp: spec.loadBalancerIP ?? "",
      externalIps: spec.externalIPs ?? [],
      ports: (spec.ports ?? []).map(({ protocol = "", port = 0, nodePort = 0 }) => ({ protocol, port, nodePort })),
      loadBalancerIngressIps: ingress.flatMap(({ ip = "" }) => (ip === "" ? [] : [ip])),
    });
  }

  /** `kns.<namespace>` and `ksa.<namespace>.<account>`; other profiles stand for nothing of Kubernetes. */
  setProfile(profile: string, resource: Resource | undefined): void {
    const labels = resource === undefined ? undefined : (specOf<ProfileSpec>(resource).labelsToApply ?? {});
    const namespace = /^kns\.(.+)$/.exec(profile)?.[1];
    if (namespace !== undefined) {
      if (labels === undefined) this.#out.namespaces.remove(namespace, { type: "namespaceRemove", name: namespace });
      else
        this.#out.namespaces.update(namespace, {
          type: "namespaceUpdate",
          name: namespace,
          labels: withoutPrefix(labels, "pcns."),
        });
    }
    const account = /^ksa\.([^.]+)\.(.+)$/.exec(profile);
    if (account?.[1] === undefined || account[2] === undefined) return;
    const id = { namespace: account[1], name: account[2] };
    if (labels === undefined) this.#out.serviceAccounts.remove(profile, { type: "serviceAccountRemove", ...id });
    else
      this.#out.serviceAccounts.update(profile, {
        type: "serviceAccountUpdate",
        ...id,
        labels: withoutPrefix(labels, "pcsa."),
      });
  }
}

/** The labels the user gave, which profiles carry behind a prefix. */
function withoutPrefix(labels: Labels, prefix: string): Labels {
  return Object.fromEntries(
    Object.entries(labels).map(([name, value]) => [name.startsWith(prefix) ? name.slice(prefix.length) : name, value]),
  );
}

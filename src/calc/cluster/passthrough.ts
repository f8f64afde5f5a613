// Converts resources that need no calculation to dataplane messages: pools, WireGuard peers, the global BGP
// configuration, services, and the Kubernetes namespaces and service accounts, whose labels are stored in profiles.
import type { Cidr } from "../../lib/ip/ip.ts";
import type { BgpConfiguration, Labels, Pool, ResourceKey, Service, Wireguard } from "../../model/index.ts";
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

  setBgpConfiguration(name: string, configuration: BgpConfiguration | undefined): void {
    if (name !== "default") return;
    const message = {
      type: "globalBgpConfigUpdate",
      serviceClusterCidrs: configuration?.serviceClusterIps ?? [],
      serviceExternalCidrs: configuration?.serviceExternalIps ?? [],
      serviceLoadBalancerCidrs: configuration?.serviceLoadBalancerIps ?? [],
      localWorkloadPeeringIpV4: configuration?.localWorkloadPeeringIps[4] ?? "",
      localWorkloadPeeringIpV6: configuration?.localWorkloadPeeringIps[6] ?? "",
    } as const;
    if (Bun.deepEquals(this.#bgp.get(name), message, true)) return;
    if (configuration === undefined && !this.#bgp.has(name)) return;
    this.#bgp.set(name, message);
    this.#out.setBgpConfig(message);
  }

  setService(key: ResourceKey, service: Service | undefined): void {
    const { name, namespace = "" } = key;
    const id = `${namespace}/${name}`;
    if (service === undefined) {
      this.#out.services.remove(id, { type: "serviceRemove", name, namespace });
      return;
    }
    this.#out.services.update(id, {
      type: "serviceUpdate",
      name,
      namespace,
      serviceType: service.type,
      clusterIps: service.clusterIps,
      loadBalancerIp: service.loadBalancerIp,
      externalIps: service.externalIps,
      ports: service.ports,
      loadBalancerIngressIps: service.loadBalancerIngressIps,
    });
  }

  /** `kns.<namespace>` is the profile of a namespace, `ksa.<namespace>.<name>` of a service account. Others are ignored. */
  setProfile(profile: string, labels: Labels | undefined): void {
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

/** Returns the labels as the user wrote them; profiles store them with a prefix. */
function withoutPrefix(labels: Labels, prefix: string): Labels {
  return Object.fromEntries(
    Object.entries(labels).map(([name, value]) => [name.startsWith(prefix) ? name.slice(prefix.length) : name, value]),
  );
}

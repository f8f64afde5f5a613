// Defines attacks by frames that a pod with CAP_NET_RAW sends.
import type { LabPod } from "../../src/lab/folder.ts";
import { PacketProber } from "../../src/kernel/index.ts";
import type { IpAddress } from "../../src/lib/ip/ip.ts";
import { ipPacket } from "../functional/dataplane/raw-packet.ts";
import * as frames from "../support/raw-frames.ts";
import { type Attack, type AttackContext, EVIL_MAC, judged, toHost, udpTo } from "./context.ts";
import { addressOf, CHECK_PORT, CLAIM_PORTS, DATABASE_PORT, nodeAddress } from "./scene.ts";

const NODE_LINK_LOCAL = "fe80::ecee:eeff:feee:eeee" as IpAddress;
const { arp, ETHERTYPE, frame, HOST_MAC } = frames;
/** BGP, Felix's probes and metrics, kubelet, API server, Typha, and a port without a listener. */
const NODE_PORTS = [22, 179, 9099, 9091, 10250, 6443, 5473, 7777];

const others = ({ scene }: AttackContext, attacker: LabPod): readonly LabPod[] =>
  scene.pods.filter((pod) => pod !== attacker);

export const PACKET_ATTACKS: readonly Attack[] = [
  {
    name: "packets to pods that policy closes",
    run: async (context) => {
      const { attacker } = context;
      return judged(
        await context.arrivals(attacker, (socket, numbered) => {
          for (const version of context.versions)
            for (const victim of context.scene.pods.filter(({ namespace }) => namespace !== attacker.namespace)) {
              const [source, destination] = [addressOf(attacker, version), addressOf(victim, version)];
              if (source === undefined || destination === undefined) continue;
              for (const port of [CHECK_PORT, ...CLAIM_PORTS])
                socket.send(toHost(udpTo(source, destination, port, numbered(`UDP ${port} to ${victim.name}`))));
              const tcp = { source, destination, protocol: 6, sourcePort: 4000, destinationPort: DATABASE_PORT };
              const syn = ipPacket(tcp, numbered(`SYN to ${victim.name}`));
              socket.send(toHost(syn));
              if (version === 4)
                socket.send(toHost(frames.withAckFlag(ipPacket(tcp, numbered(`ACK to ${victim.name}`)))));
            }
        }),
      );
    },
  },
  {
    name: "packets with a client's or the node's source address",
    run: async (context) => {
      const { attacker, lab } = context;
      const sources = [...context.scene.pods, ...lab.plan.nodes.map(({ name }) => ({ name, namespace: "" }))].filter(
        ({ name }) => name !== attacker.name,
      );
      return judged(
        await context.arrivals(attacker, (socket, numbered) => {
          for (const version of context.versions)
            for (const each of sources) {
              const source = "addresses" in each ? addressOf(each, version) : nodeAddress(lab, each.name, version);
              const destination = addressOf(context.database, version);
              if (source === undefined || destination === undefined) continue;
              socket.send(toHost(udpTo(source, destination, CHECK_PORT, numbered(`a packet as ${each.name}`))));
            }
        }),
      );
    },
  },
  {
    name: "packets in VXLAN, IPIP and fragments",
    run: async (context) => {
      const { attacker, lab } = context;
      const [own, client, database] = [attacker, context.pod("prod/client"), context.database].map((pod) =>
        addressOf(pod, 4),
      ) as [IpAddress, IpAddress, IpAddress];
      return judged(
        await context.arrivals(attacker, (socket, numbered) => {
          for (const { name } of lab.plan.nodes) {
            const node = nodeAddress(lab, name) ?? database;
            const inner = (what: string) => udpTo(client, database, CHECK_PORT, numbered(what));
            socket.send(toHost(frames.vxlan(own, node, inner(`VXLAN to ${name}`))));
            socket.send(toHost(frames.ipv4(own, node, 4, inner(`IPIP to ${name}`))));
          }
          const nonce = numbered("fragments");
          const payload = udpTo(own, database, CHECK_PORT, nonce).slice(20);
          for (const part of frames.fragmented(own, database, 17, payload, nonce & 0xffff)) socket.send(toHost(part));
        }),
      );
    },
  },
  {
    name: "packets to the node's loopback addresses",
    run: async (context) => {
      const { attacker } = context;
      const own = addressOf(attacker, 4) as IpAddress;
      return judged(
        await context.arrivals(attacker, (socket, numbered) => {
          for (const address of ["127.0.0.1", "127.0.1.1", "127.99.0.7"] as IpAddress[])
            for (const source of [own, "127.0.0.1" as IpAddress])
              for (const port of [9099, 7777])
                socket.send(toHost(udpTo(source, address, port, numbered(`a packet to ${address}`))));
          const tcp = { source: own, destination: "127.0.0.1" as IpAddress, sourcePort: 4000, destinationPort: 9099 };
          socket.send(toHost(ipPacket({ ...tcp, protocol: 6 }, numbered("SYN to 127.0.0.1"))));
        }),
      );
    },
  },
  {
    name: "packets to the node's own and link-local addresses",
    run: async (context) => {
      const { attacker, lab } = context;
      return judged(
        await context.arrivals(attacker, (socket, numbered) => {
          // Only those of its own node: packets to another node's addresses are subject to that node's host endpoint policy.
          for (const version of [4, 6] as const) {
            const own = addressOf(attacker, version) ?? (version === 6 ? ("fe80::66" as IpAddress) : undefined);
            const node = nodeAddress(lab, attacker.node, version);
            if (own === undefined) continue;
            const targets = version === 6 ? [node, NODE_LINK_LOCAL, "ff02::1" as IpAddress] : [node];
            for (const target of targets)
              if (target !== undefined)
                socket.send(toHost(udpTo(own, target, 7777, numbered(`a packet to ${target}`))));
          }
        }),
      );
    },
  },
  {
    name: "connections to ports of the nodes",
    run: async (context) => {
      const { attacker, lab } = context;
      const from = context.targetOf(attacker);
      using prober = new PacketProber();
      const requests = context.versions.flatMap((version) => {
        const to = nodeAddress(lab, attacker.node, version);
        return to === undefined ? [] : NODE_PORTS.map((port) => ({ from, to, port, protocol: "tcp" as const }));
      });
      const outcomes = await prober.probe(requests, { timeoutMs: 400 });
      // A refused connection has reached the node too.
      return judged(
        requests.flatMap(({ to, port }, i) =>
          outcomes[i]?.result === "silent" ? [] : [`${to} port ${port}: ${outcomes[i]?.result}`],
        ),
      );
    },
  },
  {
    name: "false ARP messages",
    run: async (context) => {
      const { attacker, lab } = context;
      const socket = context.frames(attacker);
      // Not the attacker's own address: that would affect only the attacker.
      const claimed = [
        ...others(context, attacker).map((pod) => addressOf(pod, 4)),
        ...lab.plan.nodes.map(({ name }) => nodeAddress(lab, name)),
        "169.254.1.1" as IpAddress,
      ].filter((address) => address !== undefined);
      for (const address of claimed)
        for (const to of [HOST_MAC, frames.BROADCAST_MAC])
          for (const kind of ["request", "reply"] as const)
            socket.send(
              frame(to, EVIL_MAC, ETHERTYPE.arp, arp(kind, { mac: EVIL_MAC, address }, { mac: to, address })),
            );
      return judged([...(await context.divertedTraffic(attacker)), ...(await context.disturbed())]);
    },
  },
  {
    name: "false neighbour advertisements",
    run: async (context) => {
      const { attacker } = context;
      const socket = context.frames(attacker);
      const own = addressOf(attacker, 6) ?? ("fe80::66" as IpAddress);
      const claimed = [...others(context, attacker).map((pod) => addressOf(pod, 6)), NODE_LINK_LOCAL];
      for (const about of claimed.filter((address) => address !== undefined))
        for (const to of [NODE_LINK_LOCAL, "ff02::1" as IpAddress])
          for (const source of [own, about])
            socket.send(toHost(frames.neighbourAdvertisement(source, to, about, EVIL_MAC)));
      return judged([...(await context.divertedTraffic(attacker)), ...(await context.disturbed())]);
    },
  },
  {
    name: "router advertisements, redirects and DHCP offers",
    run: async (context) => {
      const { attacker, lab, database } = context;
      const routes = () =>
        [4, 6].map((version) => lab.host(attacker.node).run(["ip", `-${version}`, "route", "show", "default"]).stdout);
      const before = routes();
      const offers = await context.arrivals(attacker, (socket, numbered) => {
        const [own, target] = [addressOf(attacker, 4) as IpAddress, addressOf(database, 4) as IpAddress];
        socket.send(toHost(frames.routerAdvertisement("fe80::66" as IpAddress, "2001:db8:bad::" as IpAddress)));
        for (const source of [own, "169.254.1.1" as IpAddress]) {
          const about = udpTo(target, own, 1, 0);
          socket.send(toHost(frames.redirect(source, nodeAddress(lab, attacker.node) ?? target, own, about)));
        }
        const offer = frames.dhcpOffer(own, numbered("a DHCP offer"));
        socket.send(frame(frames.BROADCAST_MAC, EVIL_MAC, ETHERTYPE.ipv4, offer));
      });
      // Nodes may receive the broadcast, because they have no DHCP client on workload interfaces. Only other pods count.
      const atPods = offers.filter((each) => !/node\d$/.test(each));
      const added = routes().filter((route, i) => route !== before[i]);
      return judged([...atPods, ...added.map((route) => `default route ${route}`), ...(await context.disturbed())]);
    },
  },
];

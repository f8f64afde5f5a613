// Implements calico-node -show-status: prints BIRD's state as tables.
import type { IpVersion } from "../../lib/ip/ip.ts";
import { formatBoxTable } from "../../lib/terminal/table.ts";
import { readBirdFacts, type BirdFacts, peers, statusOf } from "./bird-report.ts";

export async function main(): Promise<number> {
  for (const version of [4, 6] as const) console.log(describeBird(version, await readBirdFacts(version)));
  return 0;
}

export function describeBird(version: IpVersion, facts: BirdFacts | undefined): string {
  if (facts === undefined) return `IPv${version}: BIRD does not respond.\n`;
  const { agent, bgp, routes } = statusOf(["Agent", "BGP", "Routes"], { 4: facts, 6: undefined }, new Date());
  const { status } = facts;
  return [
    `IPv${version} BIRD status`,
    table(
      ["Ready", "Version", "RouteID", "ServerTime", "LastBoot", "LastReconfig"],
      [
        [
          agent?.birdV4?.state ?? "",
          status.version,
          status.routerId,
          status.serverTime,
          status.lastReboot,
          status.lastReconfiguration,
        ],
      ],
    ),
    `IPv${version} BIRD peers`,
    table(
      ["Peer address", "Peer type", "State", "Since", "BGPState"],
      peers(facts).map((session, i) => [
        session.neighbor ?? session.name,
        bgp?.peersV4?.[i]?.type ?? "",
        session.state,
        session.since,
        session.bgpState,
      ]),
    ),
    `IPv${version} BIRD routes`,
    table(
      ["Destination", "Gateway", "Iface", "LearnedFrom", "primary"],
      (routes?.routesV4 ?? []).map((route) => [
        route.destination ?? "",
        route.gateway ?? "",
        route.interface ?? "",
        [route.learnedFrom?.sourceType, route.learnedFrom?.peerIP].filter(Boolean).join(" "),
        String(route.type === "FIB"),
      ]),
    ),
  ].join("\n");
}

const table = (titles: readonly string[], rows: readonly (readonly string[])[]): string =>
  formatBoxTable(
    titles.map((title) => ({ title })),
    rows,
  );

import { describe, expect, test } from "bun:test";
import { parseAddress } from "../../lib/ip/ip.ts";
import { sessionCause } from "../session-cause.ts";
import type { ReplyLine } from "./control.ts";
import { type BirdSession, bgpSessions, parseProtocols, parseRoutes, parseStatus } from "./replies.ts";

/** Parses text in the format of the control socket. */
function reply(text: string): readonly ReplyLine[] {
  let code = 0;
  return text
    .trim()
    .split("\n")
    .map((line) => {
      const [, digits, , rest] = /^(\d{4})([ -])(.*)$/.exec(line) ?? [];
      if (digits !== undefined) code = Number(digits);
      return { code, text: rest ?? line.slice(1) };
    });
}

const protocols = `
2002-Name       Proto      Table      State  Since         Info
1002-static1    Static     master4    up     23:44:53.360  
1006-  Channel ipv4
    State:          UP
    Routes:         1 imported, 0 exported, 1 preferred
 
1002-Mesh_10_77_0_2 BGP        ---        up     2026-11-15 23:44:54  Established   
1006-  Description:    Connection to BGP peer
   BGP state:          Established
     Neighbor address: 10.77.0.2
     Neighbor AS:      64512
     Local AS:         64513
   Channel ipv4
     State:          UP
     Routes:         7 imported, 3 exported, 1 preferred
     Route change stats:     received   rejected   filtered    ignored   accepted
       Import updates:              9          0          2          0          7
       Export updates:             12          9          0        ---          3
 
1002-Global_fd00__1_port_1179 BGP        ---        start  23:44:54.912  Active        Socket: Connection refused
1006-  BGP state:          Active
     Last error:       Socket: Connection refused
0000 
`;

describe("NB-142 BIRD 2's replies", () => {
  test("protocols with sessions and details", () => {
    const parsed = parseProtocols(reply(protocols));
    expect(parsed.map(({ name, proto, state, since }) => [name, proto, state, since])).toEqual([
      ["static1", "Static", "up", "23:44:53.360"],
      ["Mesh_10_77_0_2", "BGP", "up", "2026-11-15 23:44:54"],
      ["Global_fd00__1_port_1179", "BGP", "start", "23:44:54.912"],
    ]);
    expect(bgpSessions(parsed)).toEqual([
      {
        name: "Mesh_10_77_0_2",
        kind: "mesh",
        neighbor: parseAddress("10.77.0.2"),
        port: undefined,
        state: "up",
        since: "2026-11-15 23:44:54",
        bgpState: "Established",
        info: "Established",
        lastError: undefined,
        neighborAs: 64512,
        localAs: 64513,
        imported: 7,
        exported: 3,
        updatesReceived: 9,
        isRecoveryPending: false,
      },
      {
        name: "Global_fd00__1_port_1179",
        kind: "global",
        neighbor: parseAddress("fd00::1"),
        port: 1179,
        state: "start",
        since: "23:44:54.912",
        bgpState: "Active",
        info: "Active Socket: Connection refused",
        lastError: "Socket: Connection refused",
        neighborAs: undefined,
        localAs: undefined,
        imported: 0,
        exported: 0,
        updatesReceived: 0,
        isRecoveryPending: false,
      },
    ]);
  });

  test("`show protocols` without details", () => {
    const [session] = bgpSessions(
      parseProtocols(
        reply(
          "2002-name     proto    table    state  since       info\n1002-Node_10_0_0_1 BGP      master   up     2016-11-21  Established\n0000 ",
        ),
      ),
    );
    expect(session).toMatchObject({ kind: "node", neighbor: "10.0.0.1", since: "2016-11-21", bgpState: "Established" });
  });

  test("status, with and without a graceful restart in progress", () => {
    const status = `
1000-BIRD 2.0.12
1011-Router ID is 10.77.0.1
 Hostname is vm
 Current server time is 2026-11-15 23:45:01.395
 Last reboot on 2026-11-15 23:44:53.360
 Last reconfiguration on 2026-11-15 23:44:54.000
0024-Graceful restart recovery in progress
   Waiting for 1 protocols to recover
   Wait timer is 238/240
0013 Daemon is up and running`;
    expect(parseStatus(reply(status))).toEqual({
      version: "2.0.12",
      routerId: "10.77.0.1",
      serverTime: "2026-11-15 23:45:01.395",
      lastReboot: "2026-11-15 23:44:53.360",
      lastReconfiguration: "2026-11-15 23:44:54.000",
      isRecovering: true,
    });
    expect(parseStatus(reply("1000-BIRD v1.6.8\n0013 Daemon is up and running"))).toMatchObject({
      version: "1.6.8",
      isRecovering: false,
    });
  });

  test("routes with several next hops, and blackhole routes", () => {
    const routes = `
1007-Table master4:
 10.77.0.0/24         unicast [direct1 23:44:53.468] * (240)
 	dev eth0
1007-192.168.2.0/26       unicast [Mesh_10_77_0_2 23:44:55.220] * (100) [i]
 	via 10.77.0.2 on eth0
                     unicast [Mesh_10_77_0_3 23:44:55.220] (100) [i]
 	via 10.77.0.3 on eth0 weight 1
 	via 10.77.0.4 on eth1 weight 1
 192.168.1.0/26       blackhole [static1 23:44:53.360] * (200)
0000 `;
    expect(parseRoutes(reply(routes))).toEqual([
      { destination: "10.77.0.0/24", isBest: true, protocol: "direct1", gateway: undefined, interface: "eth0" },
      {
        destination: "192.168.2.0/26",
        isBest: true,
        protocol: "Mesh_10_77_0_2",
        gateway: "10.77.0.2",
        interface: "eth0",
      },
      {
        destination: "192.168.2.0/26",
        isBest: false,
        protocol: "Mesh_10_77_0_3",
        gateway: "10.77.0.3",
        interface: "eth0",
      },
      {
        destination: "192.168.2.0/26",
        isBest: false,
        protocol: "Mesh_10_77_0_3",
        gateway: "10.77.0.4",
        interface: "eth1",
      },
      { destination: "192.168.1.0/26", isBest: true, protocol: "static1", gateway: undefined, interface: "blackhole" },
    ]);
  });
});

describe("why a session is down", () => {
  const session = (bgpState: BirdSession["bgpState"], lastError?: string): BirdSession => ({
    name: "x",
    kind: "mesh",
    neighbor: undefined,
    port: undefined,
    state: "start",
    since: "",
    bgpState,
    info: bgpState,
    lastError,
    neighborAs: 64512,
    localAs: 64513,
    imported: 0,
    exported: 0,
    updatesReceived: 0,
    isRecoveryPending: false,
  });
  const cases = [
    ["Active", "Socket: Connection refused", "nothing listens"],
    ["Connect", "Socket: No route to host", "no route"],
    ["Active", "Received: Bad peer AS", "this node has 64513 and expects 64512"],
    ["Idle", "Error: Hold timer expired", "stopped responding"],
    ["Active", "Socket: Cannot assign requested address", "no interface of this host"],
    ["Passive", undefined, "waiting for the peer"],
    ["Active", undefined, "not connected yet"],
    ["Down", "No listening socket", "another program uses the BGP port"],
  ] as const;
  for (const [state, error, want] of cases)
    test(`${state} ${error ?? ""}`, () => expect(sessionCause(session(state, error))).toContain(want));
  test("the logged error, addresses, routes and TCP signatures explain more than BIRD's last error", () => {
    const closed = session("Active", "Socket: Connection closed");
    expect(sessionCause(closed)).toContain("closed the connection");
    expect(sessionCause(closed, { loggedError: "Bad peer AS: 65101" })).toContain(
      "expects 64512, but the peer has 65101",
    );
    // The number in an error that the peer sent is that of this node.
    for (const each of [session("Idle", "Received: Bad peer AS: 64512"), closed])
      expect(sessionCause(each, { loggedError: "Received: Bad peer AS: 64512" })).toContain("compare with the peer");
    expect(sessionCause(closed, { source: { address: "10.0.0.9", isLocal: false } })).toContain(
      "the Node has 10.0.0.9",
    );
    expect(sessionCause(session("Active", "Socket: No route to host"), { hasRoute: true })).toContain("a route exists");
    const signatures = { missing: 0, unexpected: 3, wrong: 0 };
    expect(sessionCause(session("Connect"), { hasPassword: false, signatures })).toContain("this node has none");
    expect(sessionCause(closed, { hasPassword: false, signatures })).toContain("closed the connection"); // the peer did respond
  });
  test("a peer directly connected to an interface without the Node's address indicates a wrong source address", () => {
    const source = { address: "10.78.0.12", isLocal: true };
    const connectedLink = { link: "eth0", address: "10.77.0.12" };
    const cause = sessionCause(session("Connect"), { source, hasRoute: true, connectedLink });
    expect(cause).toContain("wrong source address: sessions use the Node's address 10.78.0.12");
    expect(cause).toContain("directly connected to eth0, where this host has 10.77.0.12");
    const same = { source, hasRoute: true, connectedLink: { link: "eth1", address: "10.78.0.12" } };
    expect(sessionCause(session("Connect"), same)).toContain("not connected yet");
  });
  test("an established session has no cause", () => expect(sessionCause(session("Established"))).toBeUndefined());
});

import { expect, test } from "bun:test";
import { createServer } from "node:net";
import { openSqliteInMemory } from "../datastore/index.ts";
import { memoryRouteKernel, MemoryWireguard } from "../kernel/index.ts";
import type { Cidr, IpAddress } from "../lib/ip.ts";
import { silentLogger } from "../lib/log.ts";
import type { Resource, ResourceKey } from "../model/index.ts";
import { createTyphaSyncer, TyphaUnreachable } from "../typha/index.ts";
import { WireguardStart, type WireguardStartSettings } from "./wireguard-start.ts";

const key = (letter: string) => btoa(letter.repeat(32));
const nodeKey = (name: string): ResourceKey => ({ type: "resource", kind: "Node", name });

async function open(given: Partial<WireguardStartSettings> = {}, published?: string) {
  const store = await openSqliteInMemory();
  const kernel = memoryRouteKernel();
  const devices = new MemoryWireguard(kernel.links);
  const config: WireguardStartSettings = {
    FelixHostname: "me",
    WireguardEnabled: true,
    WireguardEnabledV6: false,
    WireguardInterfaceName: "wireguard.cali",
    WireguardInterfaceNameV6: "wg-v6.cali",
    WireguardHostEncryptionEnabled: true,
    ...given,
  };
  const put = (name: string, wireguardPublicKey: string) =>
    store.apply({
      key: nodeKey(name),
      value: {
        ...{ apiVersion: "projectcalico.org/v3", kind: "Node", metadata: { name }, spec: {} },
        ...(wireguardPublicKey === "" ? {} : { status: { wireguardPublicKey } }),
      } as Resource,
    });
  kernel.links.create({ name: "wireguard.cali", type: { kind: "wireguard" } });
  devices.set("wireguard.cali", {
    privateKey: key("p"),
    set: [
      { publicKey: key("b"), endpoint: { address: "192.0.2.2" as IpAddress, port: 51820 }, allowed: [] as Cidr[] },
      { publicKey: key("c"), endpoint: { address: "192.0.2.3" as IpAddress, port: 51820 }, allowed: [] },
    ],
  });
  const own = devices.get("wireguard.cali")?.publicKey ?? "";
  await put("me", published ?? own);
  const start = new WireguardStart({
    config,
    store,
    links: kernel.links,
    openWireguard: () => devices,
    log: silentLogger,
    signal: new AbortController().signal,
  });
  const state = async () => {
    const { value } = await store.get(nodeKey("me"));
    const status = (value.status ?? {}) as { wireguardPublicKey?: string };
    return { hasDevice: kernel.links.get("wireguard.cali") !== undefined, key: status.wireguardPublicKey ?? "" };
  };
  return { start, state, put, own, devices };
}

test("FD-152 at the start the device stays when its key is the published one", async () => {
  const { start, state, own } = await open();
  await start.prepare();
  expect(await state()).toEqual({ hasDevice: true, key: own });
});

test("FD-152 a key the others do not know, or no peers: device and key go, the others come unencrypted", async () => {
  const other = await open({}, key("x"));
  await other.start.prepare();
  expect(await other.state()).toEqual({ hasDevice: false, key: "" });
  const alone = await open();
  alone.devices.set("wireguard.cali", { replacePeers: true });
  await alone.start.prepare();
  expect(await alone.state()).toEqual({ hasDevice: false, key: "" });
  // Without host encryption the hosts reach each other anyhow.
  const pods = await open({ WireguardHostEncryptionEnabled: false }, key("x"));
  await pods.start.prepare();
  expect(await pods.state()).toEqual({ hasDevice: true, key: key("x") });
});

test("FD-152 switched off: device and key are gone before Typha is looked for", async () => {
  const { start, state } = await open({ WireguardEnabled: false });
  await start.prepare();
  expect(await state()).toEqual({ hasDevice: false, key: "" });
});

test("FD-152 Typhas on nodes that see us differently are left out; if that leaves none, encryption goes", async () => {
  const { start, state, put, own } = await open();
  await put("b", key("b"));
  await put("c", key("new")); // it changed, we have not heard
  await put("d", "");
  await put("e", "");
  await start.prepare();
  const at = (host: string, nodeName?: string) => ({
    host,
    port: 5473,
    ...(nodeName === undefined ? {} : { nodeName }),
  });
  const found = [
    at("192.0.2.2", "b"),
    at("192.0.2.3", "c"),
    at("192.0.2.4", "d"),
    at("192.0.2.9"),
    at("192.0.2.1", "me"),
  ];
  expect((await start.chooseTyphas(found)).map(({ host }) => host)).toEqual([
    "192.0.2.2",
    "192.0.2.4",
    "192.0.2.9",
    "192.0.2.1",
  ]);
  expect(await state()).toEqual({ hasDevice: true, key: own });
  const [, bad] = found;
  expect(await start.chooseTyphas(bad === undefined ? [] : [bad])).toEqual(bad === undefined ? [] : [bad]);
  expect(await state()).toEqual({ hasDevice: false, key: "" });
});

test("FC-020 no Typha for the time there is: the connection is given up, WireGuard taken away", async () => {
  const { start, state } = await open();
  const syncer = await createTyphaSyncer({
    settings: { address: `127.0.0.1:${await closedPort()}`, namespace: "", readTimeoutMs: 1000, writeTimeoutMs: 1000 },
    syncer: "felix",
    hostname: "me",
    log: silentLogger,
    env: {},
    giveUpMs: 150,
  });
  const controller = new AbortController();
  const nothing = { onStatus: () => {}, onUpdates: () => {} };
  const failure = await syncer.run(nothing as never, controller.signal).then(
    () => undefined,
    (error: unknown) => error,
  );
  controller.abort();
  expect(failure).toBeInstanceOf(TyphaUnreachable);
  await start.giveUp();
  expect(await state()).toEqual({ hasDevice: false, key: "" });
  // Where only pods' traffic is encrypted, it is not in the way and stays.
  const pods = await open({ WireguardHostEncryptionEnabled: false });
  await pods.start.giveUp();
  expect(await pods.state()).toMatchObject({ hasDevice: true });
});

/** A port nobody listens on. */
function closedPort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer();
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 1));
    });
  });
}

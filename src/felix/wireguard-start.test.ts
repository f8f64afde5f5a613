import { expect, test } from "bun:test";
import { createServer } from "node:net";
import { openSqliteInMemory } from "../datastore/index.ts";
import { memoryRtnetlink, MemoryWireguard } from "../kernel/index.ts";
import type { Cidr, IpAddress } from "../lib/ip/ip.ts";
import { silentLogger } from "../lib/log/log.ts";
import type { Resource, ResourceKey } from "../model/index.ts";
import { createTyphaSyncer, TyphaUnreachable } from "../typha/index.ts";
import { WireguardStart, type WireguardStartSettings } from "./wireguard-start.ts";

const key = (letter: string) => btoa(letter.repeat(32));
const nodeKey = (name: string): ResourceKey => ({ type: "resource", kind: "Node", name });

async function open(settings: Partial<WireguardStartSettings> = {}, published?: string) {
  const store = await openSqliteInMemory();
  const kernel = memoryRtnetlink();
  const devices = new MemoryWireguard(kernel.links);
  const config: WireguardStartSettings = {
    FelixHostname: "me",
    WireguardEnabled: true,
    WireguardEnabledV6: false,
    WireguardInterfaceName: "wireguard.cali",
    WireguardInterfaceNameV6: "wg-v6.cali",
    WireguardHostEncryptionEnabled: true,
    ...settings,
  };
  const putNode = (name: string, wireguardPublicKey: string) =>
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
  await putNode("me", published ?? own);
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
  return { start, state, putNode, own, devices };
}

test("FD-152 keeps the device at startup if its key is the published one", async () => {
  const { start, state, own } = await open();
  await start.prepare();
  expect(await state()).toEqual({ hasDevice: true, key: own });
});

test("FD-152 removes device and key if the key is not the published one or the device has no peers", async () => {
  const other = await open({}, key("x"));
  await other.start.prepare();
  expect(await other.state()).toEqual({ hasDevice: false, key: "" });
  const alone = await open();
  alone.devices.set("wireguard.cali", { replacePeers: true });
  await alone.start.prepare();
  expect(await alone.state()).toEqual({ hasDevice: false, key: "" });
  // Without host encryption, WireGuard does not affect traffic between hosts.
  const pods = await open({ WireguardHostEncryptionEnabled: false }, key("x"));
  await pods.start.prepare();
  expect(await pods.state()).toEqual({ hasDevice: true, key: key("x") });
});

test("FD-152 if WireGuard is disabled, removes device and key before connecting to Typha", async () => {
  const { start, state } = await open({ WireguardEnabled: false });
  await start.prepare();
  expect(await state()).toEqual({ hasDevice: false, key: "" });
});

test("FD-152 skips Typhas on hosts that disagree on encryption; if none is left, removes the encryption", async () => {
  const { start, state, putNode, own } = await open();
  await putNode("b", key("b"));
  await putNode("c", key("new")); // changed, but the kernel still has the old key
  await putNode("d", "");
  await putNode("e", "");
  await start.prepare();
  const at = (host: string, nodeName?: string) => ({
    host,
    port: 5473,
    nodeName,
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

test("FC-020 fails if Typha is unreachable until the timeout, and removes WireGuard", async () => {
  const { start, state } = await open();
  const syncer = await createTyphaSyncer({
    settings: { address: `127.0.0.1:${await closedPort()}`, namespace: "", readTimeoutMs: 1000, writeTimeoutMs: 1000 },
    syncer: "felix",
    hostname: "me",
    log: silentLogger,
    env: {},
    firstConnectionTimeoutMs: 150,
  });
  const controller = new AbortController();
  const nothing = { onStatus: () => {}, onUpdates: () => {} };
  const failure = await syncer.run(nothing as never, controller.signal).then(
    () => undefined,
    (error: unknown) => error,
  );
  controller.abort();
  expect(failure).toBeInstanceOf(TyphaUnreachable);
  await start.removeEncryption();
  expect(await state()).toEqual({ hasDevice: false, key: "" });
  // If only pod traffic is encrypted, WireGuard does not affect Typha and is kept.
  const pods = await open({ WireguardHostEncryptionEnabled: false });
  await pods.start.removeEncryption();
  expect(await pods.state()).toMatchObject({ hasDevice: true });
});

/** Returns a port that no process listens on. */
function closedPort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer();
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 1));
    });
  });
}

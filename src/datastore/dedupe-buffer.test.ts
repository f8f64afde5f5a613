import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { keyPath } from "../model/index.ts";
import { DedupeBuffer } from "./dedupe-buffer.ts";
import type { SyncerSink, SyncerUpdate } from "./syncer.ts";

const set = (name: string, value: string): SyncerUpdate => ({
  key: { type: "globalConfig", name },
  value,
  change: "new",
});
const gone = (name: string): SyncerUpdate => ({
  key: { type: "globalConfig", name },
  value: undefined,
  change: "deleted",
});

class Consumer implements SyncerSink {
  readonly received: string[] = [];
  readonly batches: number[] = [];
  readonly state = new Map<string, unknown>();
  onStatus(status: string): void {
    this.received.push(status);
  }
  onUpdates(updates: readonly SyncerUpdate[]): void {
    this.batches.push(updates.length);
    for (const { key, value, change } of updates) {
      const path = keyPath(key);
      expect(change).toBe(value === undefined ? "deleted" : this.state.has(path) ? "updated" : "new");
      if (value === undefined) expect(this.state.delete(path)).toBe(true);
      else this.state.set(path, value);
      this.received.push(`${path.split("/").at(-1)}=${String(value)}`);
    }
  }
}

async function drain(buffer: DedupeBuffer, consumer: Consumer): Promise<void> {
  const abort = new AbortController();
  const running = buffer.run(consumer, abort.signal);
  while (buffer.size > 0) await new Promise((resolve) => setImmediate(resolve));
  abort.abort();
  await running;
}

describe("DM-122 the dedupe buffer", () => {
  test("FC-038 keeps the newest value per key, and drops a key that is deleted before its delivery", async () => {
    const buffer = new DedupeBuffer();
    const consumer = new Consumer();
    buffer.onUpdates([set("a", "1"), set("b", "1"), set("c", "1")]);
    buffer.onUpdates([set("a", "2"), gone("b")]);
    await drain(buffer, consumer);
    expect(consumer.received).toEqual(["a=2", "c=1"]);
    buffer.onUpdates([gone("a"), set("a", "3"), gone("c")]);
    await drain(buffer, consumer);
    expect(consumer.received.slice(2)).toEqual(["a=3", "c=undefined"]);
  });

  test("FC-038 delivers a status after the updates before it, in batches of at most a hundred", async () => {
    const buffer = new DedupeBuffer();
    const consumer = new Consumer();
    buffer.onStatus("resync");
    buffer.onUpdates(Array.from({ length: 250 }, (_, i) => set(`k${i}`, "1")));
    buffer.onStatus("in-sync");
    buffer.onUpdates([set("k0", "2"), set("late", "1")]);
    await drain(buffer, consumer);
    expect(consumer.batches).toEqual([100, 100, 50, 1]);
    expect(consumer.received.indexOf("in-sync")).toBe(251);
    expect(consumer.received.at(-1)).toBe("late=1");
  });

  test("FC-038 after a restart, keys that are not sent again before in-sync are deleted", async () => {
    const buffer = new DedupeBuffer();
    const consumer = new Consumer();
    buffer.onUpdates([set("a", "1"), set("b", "1")]);
    await drain(buffer, consumer);
    buffer.onUpdates([set("queued", "1")]);
    buffer.onRestart();
    buffer.onStatus("resync");
    buffer.onUpdates([set("b", "1")]);
    buffer.onStatus("in-sync");
    await drain(buffer, consumer);
    expect([...consumer.state.keys()]).toEqual(["/calico/v1/config/b"]);
    expect(consumer.received.at(-1)).toBe("in-sync");
  });

  test("property: the consumer's final state equals the source's", () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.oneof(
            fc.record({
              name: fc.constantFrom("a", "b", "c"),
              value: fc.option(fc.constantFrom("1", "2"), { nil: undefined }),
            }),
            fc.constantFrom("drain" as const, "restart" as const),
          ),
          { maxLength: 20 },
        ),
        async (steps) => {
          const buffer = new DedupeBuffer();
          const consumer = new Consumer();
          const source = new Map<string, string>();
          for (const step of steps) {
            if (step === "drain") await drain(buffer, consumer);
            else if (step === "restart") {
              buffer.onRestart();
              buffer.onUpdates([...source].map(([name, value]) => set(name, value)));
              buffer.onStatus("in-sync");
            } else if (step.value === undefined) {
              source.delete(step.name);
              buffer.onUpdates([gone(step.name)]);
            } else {
              source.set(step.name, step.value);
              buffer.onUpdates([set(step.name, step.value)]);
            }
          }
          await drain(buffer, consumer);
          const want = [...source].map(([name, value]) => [`/calico/v1/config/${name}`, value]).sort();
          expect([...consumer.state].sort()).toEqual(want as never);
        },
      ),
    ));
});

import { expect, test } from "bun:test";
import type { StoredKey } from "../model/index.ts";
import type { Datastore } from "./datastore.ts";
import { type KindListener, KindUpdates } from "./kind-updates.ts";

test("ten problems of one object are reported, and the fact that there are more", () => {
  const reported: string[] = [];
  const nothing = () => {};
  const listener: KindListener = {
    ...{ onStatus: nothing, onUpdates: nothing, onSuccess: nothing, onFailure: nothing },
    onUnreadable: (_, reason) => reported.push(reason),
  };
  let count = 0;
  const updates = new KindUpdates({
    datastore: {} as Datastore,
    kind: {
      query: { type: "resource", kind: "NetworkPolicy" },
      processor: {
        reset: nothing,
        process: (_, report) => {
          for (let i = 0; i < count; i++) report(`rule ${i}`);
          return [];
        },
      },
    },
    listener,
    deleteOnOutage: false,
  });
  const key = { type: "resource", kind: "NetworkPolicy", namespace: "ns1", name: "p" } as StoredKey;
  const apply = (problems: number) => {
    count = problems;
    updates.applyEvents([{ type: "deleted", key, revision: "1" }]);
    return reported.splice(0);
  };
  expect(apply(10)).toHaveLength(10);
  const many = apply(70_000);
  expect(many).toHaveLength(11);
  expect(many.at(-1)).toBe("it has more problems, which are not reported");
});

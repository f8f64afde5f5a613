// Increments a counter by compare-and-swap, for sqlite-processes.test.ts, and prints one character per success.
//   bun sqlite-writer.ts FILE INCREMENTS
import { writeSync } from "node:fs";
import { AlreadyExists, Conflict, openSqlite } from "../../src/datastore/index.ts";
import { pool, poolKey } from "./entries.ts";

const [file = "", increments = "0"] = process.argv.slice(2);
const store = await openSqlite(file);
const counter = pool("counter");
try {
  await store.create({ ...counter, value: { ...counter.value, spec: { count: 0 } } });
} catch (error) {
  if (!(error instanceof AlreadyExists)) throw error;
}
for (let done = 0; done < Number(increments); ) {
  const current = await store.get(poolKey("counter"));
  const { count } = current.value.spec as { count: number };
  try {
    await store.update({ ...current, value: { ...counter.value, spec: { count: count + 1, at: Date.now() } } });
    writeSync(1, ".");
    done++;
  } catch (error) {
    if (!(error instanceof Conflict)) throw error;
  }
}
await store.close();

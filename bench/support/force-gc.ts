// Runs a garbage collection on SIGURG and writes statistics of the JavaScript heap to $FORCE_GC_FOLDER/<pid>.json. It is
// preloaded into processes whose memory is measured.
import { heapStats } from "bun:jsc";
import { renameSync, writeFileSync } from "node:fs";
import { isMainThread } from "node:worker_threads";

const folder = process.env["FORCE_GC_FOLDER"];
if (isMainThread && folder !== undefined)
  process.on("SIGURG", () => {
    Bun.gc(true);
    // Objects with finalizers are freed by the second collection.
    setTimeout(() => {
      Bun.gc(true);
      const { heapSize, heapCapacity, extraMemorySize, objectCount, objectTypeCounts } = heapStats();
      const path = `${folder}/${process.pid}.json`;
      writeFileSync(
        `${path}.new`,
        JSON.stringify({ heapSize, heapCapacity, extraMemorySize, objectCount, objectTypeCounts }),
      );
      renameSync(`${path}.new`, path);
    }, 100).unref();
  });

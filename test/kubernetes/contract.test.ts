// Runs the contract suite of all datastores on a real API server.
import { openDatastore } from "../../src/datastore/index.ts";
import { contract } from "../contract/contract.ts";
import { isAvailable, startCluster } from "./cluster.ts";

if (isAvailable)
  contract({
    name: "kubernetes",
    lacks: new Set([
      "history",
      "status",
      "host markers",
      "raw text",
      "previous values",
      "future revision check",
      "transactions",
    ]),
    changes: 1000,
    start: async (onUnreadable) => {
      const cluster = await startCluster({ namespaces: ["prod", "prod2", "test"], isOwn: true }); // its history is compacted
      const store = await openDatastore(cluster.config, { onUnreadable });
      const other = await openDatastore(cluster.config);
      return {
        store,
        other,
        putRaw: () => Promise.reject(new Error("the server rejects invalid text")),
        compact: () => cluster.compact(),
        clear: () => cluster.clear(),
        stop: async () => {
          for (const open of [store, other]) await open.close();
          await cluster[Symbol.asyncDispose]();
        },
      };
    },
  });

// Assigns and releases addresses for several hosts until the process is killed. It logs to a file that all writers append to,
// so that lines are in the order of events: `want H` before an assignment, `got H ADDRESS` after it, `drop H` before a
// release, `gone H` after it.
import { openSync, writeSync } from "node:fs";
import { type DatastoreConfig, openDatastore } from "../../../src/datastore/index.ts";
import { Ipam } from "../../../src/ipam/index.ts";
import { cidrAddress } from "../../../src/lib/ip/ip.ts";
import { randomNumbers } from "../../support/random-numbers.ts";

const [config = "", name = "", hosts = "", logFile = "", seed = ""] = process.argv.slice(2);
const seeds = randomNumbers(Number(seed));
const file = openSync(logFile, "a");
const log = (line: string) => writeSync(file, `${line}\n`);
const datastore = await openDatastore(JSON.parse(config) as DatastoreConfig);

await Promise.all(
  hosts.split(",").map(async (host) => {
    const random = randomNumbers(seeds(2 ** 32)); // one generator per host, so that its choices do not depend on the other hosts
    const ipam = new Ipam({ datastore });
    const mine: string[] = [];
    for (let i = 0; ; i++) {
      await Bun.sleep(random(30_000) / 1000); // limits the load on the machine
      if (mine.length > 12 || (mine.length > 0 && random(10) < 4)) {
        const [handle = ""] = mine.splice(random(mine.length), 1);
        log(`drop ${handle}`);
        await ipam.releaseByHandle(handle);
        log(`gone ${handle}`);
        continue;
      }
      const handle = `${name}_${host}_${i}`;
      log(`want ${handle}`);
      const request = { host, handleId: handle, attributes: { node: host }, use: "Workload", version: 4 } as const;
      const { addresses } = await ipam.autoAssign({ ...request, count: 1 });
      if (addresses.length === 0) {
        log(`gone ${handle}`); // no address is free
        continue;
      }
      for (const address of addresses) log(`got ${handle} ${cidrAddress(address)}`);
      mine.push(handle);
    }
  }),
);

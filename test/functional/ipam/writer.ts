// One process that assigns and releases addresses for several hosts until it is killed, and tells about it in a file
// all writers append to, so that its lines are in the order of the events: `want H` before asking, `got H ADDRESS` when
// it has it, `drop H` before it gives it back, `gone H` when that is done.
import { openSync, writeSync } from "node:fs";
import { type DatastoreConfig, openDatastore } from "../../../src/datastore/index.ts";
import { Ipam } from "../../../src/ipam/index.ts";
import { cidrAddress } from "../../../src/lib/ip/ip.ts";
import { randomNumbers } from "../../support/random-numbers.ts";

const [config = "", name = "", hosts = "", log = "", seed = ""] = process.argv.slice(2);
const seeds = randomNumbers(Number(seed));
const file = openSync(log, "a");
const say = (line: string) => writeSync(file, `${line}\n`);
const datastore = await openDatastore(JSON.parse(config) as DatastoreConfig);

await Promise.all(
  hosts.split(",").map(async (host) => {
    const random = randomNumbers(seeds(2 ** 32)); // of each host its own, so that its choices do not depend on the others
    const ipam = new Ipam({ datastore });
    const mine: string[] = [];
    for (let i = 0; ; i++) {
      await Bun.sleep(random(30_000) / 1000); // so that many fit on a small machine
      if (mine.length > 12 || (mine.length > 0 && random(10) < 4)) {
        const [handle = ""] = mine.splice(random(mine.length), 1);
        say(`drop ${handle}`);
        await ipam.releaseByHandle(handle);
        say(`gone ${handle}`);
        continue;
      }
      const handle = `${name}_${host}_${i}`;
      say(`want ${handle}`);
      const request = { host, handleId: handle, attributes: { node: host }, use: "Workload", version: 4 } as const;
      const { addresses } = await ipam.autoAssign({ ...request, count: 1 });
      if (addresses.length === 0) {
        say(`gone ${handle}`); // there was nothing left to give
        continue;
      }
      for (const address of addresses) say(`got ${handle} ${cidrAddress(address)}`);
      mine.push(handle);
    }
  }),
);

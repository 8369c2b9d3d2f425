// A peer of the benchmark: oidc-provider with all its tokens in Redis.
//
//   REDIS_URL=… node server.mjs PORT
//
// `POST /supply?count=N` starts sessions as logins do. The response has a line of access token and refresh token for
// each.
import { generateKeyPairSync, randomBytes } from "node:crypto";
import Redis from "ioredis";
import Provider from "oidc-provider";

const CLIENT = { client_id: "shop", client_secret: "shop-secret" };
const SCOPE = "api offline_access";
const AT_ONCE = 100;

// ioredis sends all commands of one turn of the event loop together.
const redis = new Redis(process.env.REDIS_URL, { enableAutoPipelining: true });

const grantKey = (id) => `grant-members:${id}`;

// The storage interface of the library, for the models that these requests use. Models that can be consumed are hashes,
// and all others are strings of JSON. A list has the keys that end with a grant.
class RedisAdapter {
  constructor(model) {
    this.model = model;
    this.isConsumable = model === "RefreshToken" || model === "AuthorizationCode";
  }

  key(id) {
    return `${this.model}:${id}`;
  }

  async upsert(id, payload, expiresIn) {
    const key = this.key(id);
    const text = JSON.stringify(payload);
    const commands = redis.multi();
    if (this.isConsumable) commands.hset(key, "payload", text).expire(key, expiresIn);
    else commands.set(key, text, "EX", expiresIn);
    if (payload.grantId && this.model !== "Grant") {
      commands.rpush(grantKey(payload.grantId), key).expire(grantKey(payload.grantId), expiresIn, "GT");
    }
    await commands.exec();
  }

  async find(id) {
    if (!this.isConsumable) {
      const text = await redis.get(this.key(id));
      return text ? JSON.parse(text) : undefined;
    }
    const { payload, consumed } = await redis.hgetall(this.key(id));
    return payload ? { ...JSON.parse(payload), ...(consumed && { consumed: Number(consumed) }) } : undefined;
  }

  async consume(id) {
    await redis.hset(this.key(id), "consumed", Math.floor(Date.now() / 1000));
  }

  async destroy(id) {
    await redis.del(this.key(id));
  }

  async revokeByGrantId(grantId) {
    const members = await redis.lrange(grantKey(grantId), 0, -1);
    await redis.del(grantKey(grantId), ...members);
  }
}

function makeSigningKey() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256" };
}

const isOwn = (_, client, token) => token.clientId === client.clientId;

const port = Number(process.argv[2]);
const provider = new Provider(`http://127.0.0.1:${port}`, {
  adapter: RedisAdapter,
  clients: [
    {
      ...CLIENT,
      redirect_uris: ["https://shop.example/callback"],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
      token_endpoint_auth_method: "client_secret_post",
    },
  ],
  cookies: { keys: [randomBytes(32).toString("hex")] },
  features: {
    devInteractions: { enabled: false },
    introspection: { enabled: true, allowedPolicy: isOwn },
    revocation: { enabled: true, allowedPolicy: isOwn },
  },
  findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
  jwks: { keys: [makeSigningKey()] },
  // By default the library rotates the token of a client with a secret only in the last third of its lifetime.
  rotateRefreshToken: () => true,
  scopes: SCOPE.split(" "),
  ttl: { AccessToken: 600, Grant: 2592000, RefreshToken: 2592000 },
});
provider.on("server_error", (_, error) => console.error(error));

let users = 0;

async function startSession(client) {
  const accountId = `user${users++}@example.com`;
  const grant = new provider.Grant({ clientId: CLIENT.client_id, accountId });
  grant.addOIDCScope(SCOPE);
  const session = { accountId, client, grantId: await grant.save(), gty: "authorization_code", scope: SCOPE };
  const tokens = [new provider.AccessToken(session), new provider.RefreshToken(session)];
  return (await Promise.all(tokens.map((token) => token.save()))).join(" ");
}

provider.use(async (ctx, next) => {
  if (ctx.path !== "/supply") return await next();
  const client = await provider.Client.find(CLIENT.client_id);
  const lines = [];
  for (let left = Number(ctx.query.count); left > 0; left -= AT_ONCE) {
    lines.push(...(await Promise.all(Array.from({ length: Math.min(left, AT_ONCE) }, () => startSession(client)))));
  }
  ctx.body = lines.join("\n");
});
provider.listen(port, "127.0.0.1");

// An Express application that logs users in with Auth.js. Register the redirect URI
// http://127.0.0.1:9000/auth/callback/service.
import { ExpressAuth, getSession } from "@auth/express";
import express from "express";

const SERVICE = "http://127.0.0.1:8000";
const provider = {
  id: "service",
  name: "Token Service",
  type: "oauth",
  issuer: SERVICE,
  authorization: { url: `${SERVICE}/authorization/`, params: { scope: "realm:main role:enduser" } },
  token: `${SERVICE}/oauth2/v1/token`,
  userinfo: `${SERVICE}/oauth2/v1/userinfo`,
  clientId: "web-shop",
  clientSecret: "web-shop-secret",
  checks: ["pkce", "state"],
  profile: ({ sub, name, email }) => ({ id: sub, name, email }),
};
const config = {
  providers: [provider],
  secret: "of your application",
  trustHost: true,
  callbacks: {
    jwt: ({ token, profile }) => (profile ? { ...token, sub: profile.sub } : token), // without it, a random id
    session: ({ session, token }) => ({ ...session, user: { ...session.user, id: token.sub } }),
  },
};

export const app = express();
app.use("/auth", ExpressAuth(config));
app.get("/", async (request, response) => response.json((await getSession(request, config))?.user)); // .id

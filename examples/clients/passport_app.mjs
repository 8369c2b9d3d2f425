// An Express application that logs users in with passport-oauth2.
import express from "express";
import session from "express-session";
import passport from "passport";
import OAuth2Strategy from "passport-oauth2";

const SERVICE = "http://127.0.0.1:8000";
class Strategy extends OAuth2Strategy {
  userProfile(accessToken, done) { // without it, the profile is empty
    this._oauth2.useAuthorizationHeaderforGET(true);
    const answer = (error, body) => (error ? done(error) : done(null, JSON.parse(body)));
    this._oauth2.get(`${SERVICE}/oauth2/v1/userinfo`, accessToken, answer);
  }
}
const options = {
  authorizationURL: `${SERVICE}/authorization/`,
  tokenURL: `${SERVICE}/oauth2/v1/token`,
  clientID: "web-shop",
  clientSecret: "web-shop-secret",
  callbackURL: "http://127.0.0.1:9000/callback",
  scope: "realm:main role:enduser",
  state: true,
  pkce: true,
};
passport.use(new Strategy(options, (accessToken, refreshToken, profile, done) => done(null, profile)));
passport.serializeUser((user, done) => done(null, user.sub));
passport.deserializeUser((sub, done) => done(null, { sub }));

export const app = express();
app.use(session({ secret: "of your application", resave: false, saveUninitialized: false }), passport.session());
app.get("/login", passport.authenticate("oauth2"));
app.get("/callback", passport.authenticate("oauth2", { successRedirect: "/", failureRedirect: "/" }));
app.get("/", (request, response) => response.json(request.user)); // .sub

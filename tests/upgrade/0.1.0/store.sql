BEGIN TRANSACTION;
CREATE TABLE assignments (
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      version BIGINT NOT NULL,
      body TEXT NOT NULL,
      created BIGINT NOT NULL,
      PRIMARY KEY (job, version));
INSERT INTO "assignments" VALUES('j-4661277017b431e5',1,'{"from_step":0,"target":"no slowdown","reason":"profile 1","pipelines":[{"plan":"p-eb01798437cb7c00","time_s":0.399605031,"energy_j":485.59552031537805},{"plan":"p-eb01798437cb7c00","time_s":0.399605031,"energy_j":485.59552031537805}],"upcoming":[],"time_s":0.399605031,"tail_s":0.0,"baseline":{"time_s":0.39960552,"energy_j":541.7325138000002}}',1795447181422);
CREATE TABLE audit (
      number BIGINT PRIMARY KEY,
      at BIGINT NOT NULL,
      action TEXT NOT NULL,
      job TEXT NOT NULL,
      job_key TEXT NOT NULL,
      subject TEXT NOT NULL,
      who TEXT NOT NULL,
      name TEXT NOT NULL,
      role TEXT NOT NULL,
      peer TEXT NOT NULL,
      trace TEXT NOT NULL,
      old_value TEXT NOT NULL,
      new_value TEXT NOT NULL,
      reason TEXT NOT NULL,
      hash TEXT NOT NULL);
INSERT INTO "audit" VALUES(1,1795447180830,'job.register','j-4661277017b431e5','upgraded','','','anonymous','operator','127.0.0.1','6e2dea2f7255515a80945d25182e388f','','{"fixed":{"all_reduce_s":0.0,"load_s":0.0,"optimizer_s":0.0,"p2p_s":0.0},"gpu":{"blocking_power_w":84.0,"switch_latency_ms":2.0},"key":"upgraded","pipelines":2,"schedule":{"chunks":1,"kind":"1f1b","microbatches":6,"pp_ranks":4},"target":{"kind":"slowdown","value":0.0},"tensor_parallel":1}','','c25570fee1135de431732f3f5e79c4fa7782611ac9675a0f023052b4759f0d6c');
INSERT INTO "audit" VALUES(2,1795447180858,'job.profile','j-4661277017b431e5','upgraded','','','anonymous','operator','127.0.0.1','9a1fd41880eb6fc840f41bfbbfc4bbf7','','{"bytes":11944,"sha256":"98734ff85fd7f8bccd3d7bc54620ab4ffe76dc12449930a02737873a2b256882","version":1}','','27245af6e2a352f6c39a5e86bae65ed876f34c196eb90a427973bcbdeb73a10c');
INSERT INTO "audit" VALUES(3,1795447181422,'job.assignment','j-4661277017b431e5','upgraded','version 1','','','server','','','','{"from_step":0,"target":"no slowdown","reason":"profile 1","pipelines":[{"plan":"p-eb01798437cb7c00","time_s":0.399605031,"energy_j":485.59552031537805},{"plan":"p-eb01798437cb7c00","time_s":0.399605031,"energy_j":485.59552031537805}],"upcoming":[],"time_s":0.399605031,"tail_s":0.0,"baseline":{"time_s":0.39960552,"energy_j":541.7325138000002}}','profile 1','5af7c225cf58ea57052cb76bd6a854a8ad5f6512141fb7354b9c858234c952cd');
CREATE TABLE audit_head (number BIGINT NOT NULL, hash TEXT NOT NULL);
INSERT INTO "audit_head" VALUES(3,'5af7c225cf58ea57052cb76bd6a854a8ad5f6512141fb7354b9c858234c952cd');
CREATE TABLE frontiers (
      job TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
      profile_version BIGINT NOT NULL,
      body TEXT NOT NULL);
INSERT INTO "frontiers" VALUES('j-4661277017b431e5',1,'{"profile_version":1,"breakpoints":371,"points":[{"time_s":0.399252742,"energy_j":482.5524226875755,"price_w":2963.159957},{"time_s":0.399267646,"energy_j":482.51326749557626,"price_w":2693.342876},{"time_s":0.399375387,"energy_j":482.2592850167732,"price_w":2690.419601},{"time_s":0.399412483,"energy_j":482.1719454672545,"price_w":2682.770183},{"time_s":0.399557171,"energy_j":481.83239598301657,"price_w":2664.006341},{"time_s":0.399693552,"energy_j":481.51490015022466,"price_w":2659.93404},{"time_s":0.399905008,"energy_j":481.0234903538624,"price_w":2659.217638},{"time_s":0.399970897,"energy_j":480.87041586691225,"price_w":2655.928707},{"time_s":0.400148396,"energy_j":480.4586308413485,"price_w":2642.657726},{"time_s":0.400389379,"energy_j":479.90276554256377,"price_w":2633.869961},{"time_s":0.400453628,"energy_j":479.7551296954395,"price_w":2582.055059},{"time_s":0.400788774,"energy_j":479.0023733266359,"price_w":2571.224427},{"time_s":0.400935048,"energy_j":478.6754181088009,"price_w":2561.44212},{"time_s":0.401197452,"energy_j":478.0914531947444,"price_w":2549.309486},{"time_s":0.401286762,"energy_j":477.8937825245498,"price_w":2545.237185},{"time_s":0.401348774,"energy_j":477.75678330823354,"price_w":2538.488835},{"time_s":0.401598464,"energy_j":477.20684387102233,"price_w":2511.269669},{"time_s":0.401747908,"energy_j":476.8817628706083,"price_w":2510.553267},{"time_s":0.401941187,"energy_j":476.46146738971584,"price_w":2507.527153},{"time_s":0.401941283,"energy_j":476.4612589231092,"price_w":2501.600504},{"time_s":0.402183723,"energy_j":475.93623073691936,"price_w":2497.528203},{"time_s":0.402395179,"energy_j":475.4791626292258,"price_w":2496.811801},{"time_s":0.402641874,"energy_j":474.94610116197816,"price_w":2495.012067},{"time_s":0.402874811,"energy_j":474.4431873681274,"price_w":2479.712729},{"time_s":0.403116924,"energy_j":473.924166648171,"price_w":2474.346446},{"time_s":0.403208653,"energy_j":473.72801826702585,"price_w":2473.680781},{"time_s":0.40349472,"energy_j":473.11649833904755,"price_w":2446.410878},{"time_s":0.40368298,"energy_j":472.7191923871552,"price_w":2440.484229},{"time_s":0.403943094,"energy_j":472.1717865764131,"price_w":2434.393799},{"time_s":0.404034823,"energy_j":471.97930301162467,"price_w":2420.699746},{"time_s":0.404083393,"energy_j":471.87804914496144,"price_w":2386.827512},{"time_s":0.404172839,"energy_j":471.6946108273231,"price_w":2375.690306},{"time_s":0.404485244,"energy_j":471.0574013772772,"price_w":2375.178405},{"time_s":0.404818018,"energy_j":470.37881582273167,"price_w":2361.996253},{"time_s":0.405094728,"energy_j":469.8182023995641,"price_w":2353.013105},{"time_s":0.405297638,"energy_j":469.4089302704285,"price_w":2348.771555},{"time_s":0.405357946,"energy_j":469.28754404348956,"price_w":2341.270379},{"time_s":0.405628266,"energy_j":468.7454793546383,"price_w":2331.032018},{"time_s":0.405930483,"energy_j":468.1425467632544,"price_w":2326.173455},{"time_s":0.406053186,"energy_j":467.89834650980555,"price_w":2321.687375},{"time_s":0.406360173,"energy_j":467.2887662996164,"price_w":2312.704227},{"time_s":0.406563083,"energy_j":466.88767324491585,"price_w":2308.462677},{"time_s":0.406564726,"energy_j":466.8844324887375,"price_w":2293.758334},{"time_s":0.406658489,"energy_j":466.7008671940667,"price_w":2276.448194},{"time_s":0.407019371,"energy_j":466.00059436891956,"price_w":2271.335904},{"time_s":0.407197955,"energy_j":465.65497434183965,"price_w":2229.945177},{"time_s":0.407324397,"energy_j":465.4155001257694,"price_w":2225.851792},{"time_s":0.4074332,"energy_j":465.2098785812444,"price_w":2211.861916},{"time_s":0.407573429,"energy_j":464.94682834062564,"price_w":2190.054193},{"time_s":0.407597821,"energy_j":464.90160425075004,"price_w":2178.797406},{"time_s":0.407811205,"energy_j":464.50838076906814,"price_w":2166.832982},{"time_s":0.408020711,"energy_j":464.1248102743412,"price_w":2165.526425},{"time_s":0.408325943,"energy_j":463.56638026458563,"price_w":2151.044009},{"time_s":0.408683368,"energy_j":462.91763815966874,"price_w":2147.841486},{"time_s":0.408895894,"energy_j":462.53257473601514,"price_w":2124.867845},{"time_s":0.408912649,"energy_j":462.50260225527217,"price_w":2113.711523},{"time_s":0.409055222,"energy_j":462.24914859030343,"price_w":2112.851989},{"time_s":0.409071977,"energy_j":462.2193774352278,"price_w":2098.892428},{"time_s":0.409137572,"energy_j":462.1037405064131,"price_w":2086.241075},{"time_s":0.409202367,"energy_j":461.99033363595845,"price_w":2073.300211},{"time_s":0.40926141,"energy_j":461.88775821960047,"price_w":2052.333049},{"time_s":0.409618088,"energy_j":461.2755799803492,"price_w":2038.373488},{"time_s":0.409655177,"energy_j":461.21244065005277,"price_w":2032.330452},{"time_s":0.40983585,"energy_j":460.9059595382986,"price_w":2018.370891},{"time_s":0.409958089,"energy_j":460.70030820295364,"price_w":2010.964369},{"time_s":0.410081649,"energy_j":460.49334960551994,"price_w":2007.959041},{"time_s":0.410245536,"energy_j":460.2193372541676,"price_w":2003.88674},{"time_s":0.410362542,"energy_j":460.02418449826723,"price_w":2000.552519},{"time_s":0.411007918,"energy_j":458.9499222517651,"price_w":1988.780522},{"time_s":0.411040008,"energy_j":458.8968845248141,"price_w":1959.603815},{"time_s":0.411393194,"energy_j":458.3234503878095,"price_w":1931.594304},{"time_s":0.411556659,"energy_j":458.0626265649061,"price_w":1930.73477},{"time_s":0.411730385,"energy_j":457.7855796722531,"price_w":1925.44243},{"time_s":0.412139649,"energy_j":457.13507810558156,"price_w":1899.602382},{"time_s":0.412363071,"energy_j":456.7857349341904,"price_w":1881.27303},{"time_s":0.413005275,"energy_j":455.79335441323224,"price_w":1864.098557},{"time_s":0.413099725,"energy_j":455.6490255045236,"price_w":1863.382155},{"time_s":0.413209173,"energy_j":455.4818565824232,"price_w":1855.432982},{"time_s":0.413299706,"energy_j":455.3442977562637,"price_w":1796.226857},{"time_s":0.413346426,"energy_j":455.27607595750464,"price_w":1792.410028},{"time_s":0.413479822,"energy_j":455.08179668540964,"price_w":1761.937353},{"time_s":0.413682435,"energy_j":454.7928832405063,"price_w":1761.039825},{"time_s":0.414456753,"energy_j":453.68944925329197,"price_w":1739.753506},{"time_s":0.414594006,"energy_j":453.49677987333286,"price_w":1729.606235},{"time_s":0.414791393,"energy_j":453.22170011942495,"price_w":1679.460914},{"time_s":0.415156465,"energy_j":452.73124015662916,"price_w":1675.96061},{"time_s":0.41536275,"energy_j":452.4548263821953,"price_w":1637.915765},{"time_s":0.415500003,"energy_j":452.27613453770175,"price_w":1611.480469},{"time_s":0.415850621,"energy_j":451.8289281266219,"price_w":1598.508191},{"time_s":0.415971065,"energy_j":451.67686659006506,"price_w":1597.849904},{"time_s":0.41648233,"energy_j":451.0317268988966,"price_w":1577.608235},{"time_s":0.41690455,"energy_j":450.50749506991485,"price_w":1572.072895},{"time_s":0.416970046,"energy_j":450.4265372395839,"price_w":1568.572591},{"time_s":0.417102627,"energy_j":450.2631215328965,"price_w":1549.581095},{"time_s":0.417331908,"energy_j":449.98487044585386,"price_w":1540.199905},{"time_s":0.417930565,"energy_j":449.26396774332625,"price_w":1523.597952},{"time_s":0.418346584,"energy_j":448.76990443093314,"price_w":1514.647327},{"time_s":0.418776683,"energy_j":448.26296939423776,"price_w":1481.411508},{"time_s":0.419017922,"energy_j":447.98665146745935,"price_w":1479.611774},{"time_s":0.41903973,"energy_j":447.96171158189196,"price_w":1467.592941},{"time_s":0.419717674,"energy_j":447.1945549370987,"price_w":1465.659887},{"time_s":0.419887739,"energy_j":447.002439328416,"price_w":1463.19299},{"time_s":0.420117298,"energy_j":446.7436820328246,"price_w":1445.367324},{"time_s":0.420506154,"energy_j":446.31229789268326,"price_w":1442.95251},{"time_s":0.42069821,"energy_j":446.09970102142273,"price_w":1432.75181},{"time_s":0.420909339,"energy_j":445.86814490852925,"price_w":1410.040732},{"time_s":0.420937073,"energy_j":445.8383574628679,"price_w":1407.785269},{"time_s":0.42163776,"energy_j":445.0873714580881,"price_w":1405.985535},{"time_s":0.421870697,"energy_j":444.8381322375218,"price_w":1405.578646},{"time_s":0.422081826,"energy_j":444.6123131675705,"price_w":1379.721753},{"time_s":0.422269603,"energy_j":444.4163262279574,"price_w":1377.460782},{"time_s":0.42259179,"energy_j":444.0807811029872,"price_w":1368.114562},{"time_s":0.422608883,"energy_j":444.0631391687789,"price_w":1365.647665},{"time_s":0.423077305,"energy_j":443.5808295502443,"price_w":1364.189801},{"time_s":0.423382537,"energy_j":443.26699312090545,"price_w":1326.569495},{"time_s":0.423596782,"energy_j":443.05476855944926,"price_w":1312.374899},{"time_s":0.423898184,"energy_j":442.7604872121408,"price_w":1299.659256},{"time_s":0.424035287,"energy_j":442.6283666371654,"price_w":1294.488323},{"time_s":0.424520802,"energy_j":442.1630061790241,"price_w":1286.434558},{"time_s":0.424772509,"energy_j":441.92377514773364,"price_w":1285.676732},{"time_s":0.424876495,"energy_j":441.8250220630798,"price_w":1282.362257},{"time_s":0.424987313,"energy_j":441.7201480904836,"price_w":1267.345965},{"time_s":0.425684473,"energy_j":441.07085093752414,"price_w":1256.340197},{"time_s":0.426200285,"energy_j":440.59612841982926,"price_w":1234.044114},{"time_s":0.426282582,"energy_j":440.52222208337935,"price_w":1230.114185},{"time_s":0.42638322,"energy_j":440.43224022002937,"price_w":1229.449239},{"time_s":0.427193471,"energy_j":439.7083220806803,"price_w":1215.31922},{"time_s":0.427412007,"energy_j":439.51615917561844,"price_w":1211.818916},{"time_s":0.427743579,"energy_j":439.22576214600247,"price_w":1202.764621},{"time_s":0.427879433,"energy_j":439.1080087051812,"price_w":1202.713165},{"time_s":0.428229094,"energy_j":438.80495291319403,"price_w":1139.999093},{"time_s":0.429067428,"energy_j":438.13093313756303,"price_w":1136.498789},{"time_s":0.429198265,"energy_j":438.02619827750664,"price_w":1129.342477},{"time_s":0.429233972,"energy_j":437.9978703976804,"price_w":1113.861344},{"time_s":0.430027319,"energy_j":437.380756434002,"price_w":1093.506466},{"time_s":0.430455809,"energy_j":437.05617248838564,"price_w":1083.441255},{"time_s":0.430627226,"energy_j":436.9280483507773,"price_w":1081.518867},{"time_s":0.430670054,"energy_j":436.8961192687415,"price_w":1063.093579},{"time_s":0.432178802,"energy_j":435.7991182856124,"price_w":1015.021865},{"time_s":0.433354405,"energy_j":435.00085814405276,"price_w":933.973468},{"time_s":0.433733646,"energy_j":434.774082088075,"price_w":928.47232},{"time_s":0.434644535,"energy_j":434.2344055689825,"price_w":915.090833},{"time_s":0.434799399,"energy_j":434.1447252462208,"price_w":903.052648},{"time_s":0.435097136,"energy_j":433.97589269196317,"price_w":860.89617},{"time_s":0.435437057,"energy_j":433.79746946096066,"price_w":842.084107},{"time_s":0.435929378,"energy_j":433.5483136273183,"price_w":840.647605},{"time_s":0.436296298,"energy_j":433.3631483280917,"price_w":821.2522},{"time_s":0.43636249,"energy_j":433.3310285144693,"price_w":818.867832},{"time_s":0.436816867,"energy_j":433.1116244775686,"price_w":818.785303},{"time_s":0.436923784,"energy_j":433.06000652132775,"price_w":813.563284},{"time_s":0.437095201,"energy_j":432.9781440558744,"price_w":811.640896},{"time_s":0.437335678,"energy_j":432.863763360127,"price_w":807.405009},{"time_s":0.437682266,"energy_j":432.7003800408677,"price_w":801.575685},{"time_s":0.437709609,"energy_j":432.6876498049127,"price_w":783.848254},{"time_s":0.438098419,"energy_j":432.513521925275,"price_w":779.775953},{"time_s":0.438309875,"energy_j":432.4196828373574,"price_w":779.059551},{"time_s":0.439193641,"energy_j":432.02812187020834,"price_w":771.730917},{"time_s":0.439871585,"energy_j":431.7327207094137,"price_w":771.690931},{"time_s":0.441101085,"energy_j":431.1970387097492,"price_w":770.274166},{"time_s":0.441170308,"energy_j":431.16697694915615,"price_w":769.710311},{"time_s":0.44156838,"energy_j":430.9943290182358,"price_w":769.127585},{"time_s":0.441746984,"energy_j":430.91697069904444,"price_w":768.351778},{"time_s":0.441999948,"energy_j":430.8076012638745,"price_w":764.891698},{"time_s":0.442173242,"energy_j":430.73327690596125,"price_w":759.6451},{"time_s":0.442222552,"energy_j":430.71238696608026,"price_w":757.414574},{"time_s":0.443148821,"energy_j":430.32204371003587,"price_w":756.540266},{"time_s":0.444002755,"energy_j":429.96293007852944,"price_w":755.080797},{"time_s":0.444307987,"energy_j":429.8350132086995,"price_w":751.997875},{"time_s":0.444500043,"energy_j":429.7551183208185,"price_w":747.625961},{"time_s":0.445127529,"energy_j":429.4968287930544,"price_w":747.582912},{"time_s":0.44614878,"energy_j":429.07649933259154,"price_w":747.077378},{"time_s":0.44619809,"energy_j":429.05622910708234,"price_w":746.197034},{"time_s":0.446494516,"energy_j":428.9346360410819,"price_w":741.510147},{"time_s":0.446686794,"energy_j":428.856665361037,"price_w":728.942425},{"time_s":0.446742862,"energy_j":428.8346338651521,"price_w":725.066932},{"time_s":0.447080053,"energy_j":428.7034439972841,"price_w":715.079992},{"time_s":0.448688605,"energy_j":428.09367411799246,"price_w":713.297934},{"time_s":0.448894552,"energy_j":428.015970740379,"price_w":709.062047},{"time_s":0.449316192,"energy_j":427.85867285888196,"price_w":708.343241},{"time_s":0.44985939,"energy_j":427.6564167550572,"price_w":701.880017},{"time_s":0.450421821,"energy_j":427.45063449121585,"price_w":700.571575},{"time_s":0.451099765,"energy_j":427.2034753793741,"price_w":696.990158},{"time_s":0.451535896,"energy_j":427.0460363807754,"price_w":696.278241},{"time_s":0.452315353,"energy_j":426.76521498388024,"price_w":693.934544},{"time_s":0.452629308,"energy_j":426.6528396441187,"price_w":688.767118},{"time_s":0.453135316,"energy_j":426.4743366602738,"price_w":678.345958},{"time_s":0.454452993,"energy_j":426.0232352653743,"price_w":677.758451},{"time_s":0.454940943,"energy_j":425.85647422920874,"price_w":673.913038},{"time_s":0.455262348,"energy_j":425.7478672892304,"price_w":670.546786},{"time_s":0.455577774,"energy_j":425.64234253470954,"price_w":668.801361},{"time_s":0.45582612,"energy_j":425.55969264791065,"price_w":663.688307},{"time_s":0.456646819,"energy_j":425.29075918204404,"price_w":663.199914},{"time_s":0.456877588,"energy_j":425.2152515850902,"price_w":662.266132},{"time_s":0.458092379,"energy_j":424.8189064243318,"price_w":659.430583},{"time_s":0.458608191,"energy_j":424.6520770484534,"price_w":651.342844},{"time_s":0.458971351,"energy_j":424.53755714122633,"price_w":651.300176},{"time_s":0.459231274,"energy_j":424.45560337357983,"price_w":646.912117},{"time_s":0.459385706,"energy_j":424.4075885935273,"price_w":644.215927},{"time_s":0.459475249,"energy_j":424.37999001477596,"price_w":640.376888},{"time_s":0.460004854,"energy_j":424.21879049300674,"price_w":639.743501},{"time_s":0.460676072,"energy_j":424.01491238775253,"price_w":634.728419},{"time_s":0.460856188,"energy_j":423.96110661983596,"price_w":633.317024},{"time_s":0.461635645,"energy_j":423.72936078425994,"price_w":625.447587},{"time_s":0.462905982,"energy_j":423.3616648049331,"price_w":618.748942},{"time_s":0.463080443,"energy_j":423.3123361417629,"price_w":618.409606},{"time_s":0.463630551,"energy_j":423.15698035822544,"price_w":611.589911},{"time_s":0.464290448,"energy_j":422.97511940272625,"price_w":609.581863},{"time_s":0.465015747,"energy_j":422.7766907510742,"price_w":607.35941},{"time_s":0.466475323,"energy_j":422.3806210688641,"price_w":604.255744},{"time_s":0.467386546,"energy_j":422.1361802650492,"price_w":601.744827},{"time_s":0.46822488,"energy_j":421.91339734125097,"price_w":598.244523},{"time_s":0.469134181,"energy_j":421.6749381342425,"price_w":597.553848},{"time_s":0.470981301,"energy_j":421.19181679052474,"price_w":593.317961},{"time_s":0.471402941,"energy_j":421.0833212454487,"price_w":589.104029},{"time_s":0.472911689,"energy_j":420.70145104790305,"price_w":573.498588},{"time_s":0.473950597,"energy_j":420.4547118648411,"price_w":572.796501},{"time_s":0.474372817,"energy_j":420.3547316461889,"price_w":552.578189},{"time_s":0.475116552,"energy_j":420.193654866793,"price_w":539.272003},{"time_s":0.475954886,"energy_j":420.02324503543,"price_w":538.888475},{"time_s":0.476497921,"energy_j":419.91306949240834,"price_w":535.933167},{"time_s":0.477326975,"energy_j":419.7473141005744,"price_w":535.771699},{"time_s":0.480083396,"energy_j":419.19665919424506,"price_w":535.187317},{"time_s":0.480350147,"energy_j":419.143525778248,"price_w":531.535812},{"time_s":0.480771787,"energy_j":419.0610800584763,"price_w":526.803325},{"time_s":0.481601573,"energy_j":418.90275413063785,"price_w":521.737651},{"time_s":0.482409742,"energy_j":418.75264671896684,"price_w":520.297876},{"time_s":0.48385454,"energy_j":418.48637351631777,"price_w":515.811002},{"time_s":0.485377183,"energy_j":418.2125855527995,"price_w":507.811829},{"time_s":0.485606464,"energy_j":418.17319236483456,"price_w":506.827854},{"time_s":0.485809374,"energy_j":418.1385296849794,"price_w":502.586304},{"time_s":0.486171899,"energy_j":418.0781379851218,"price_w":495.916625},{"time_s":0.486535059,"energy_j":418.0200626635868,"price_w":485.626724},{"time_s":0.486721302,"energy_j":417.9921957336289,"price_w":484.993337},{"time_s":0.486758623,"energy_j":417.9866351532987,"price_w":483.814269},{"time_s":0.487270705,"energy_j":417.91094212680065,"price_w":479.390753},{"time_s":0.487933156,"energy_j":417.815952779085,"price_w":472.890981},{"time_s":0.488482559,"energy_j":417.7407444634507,"price_w":462.216885},{"time_s":0.489927357,"energy_j":417.5583865604365,"price_w":453.07549},{"time_s":0.489972643,"energy_j":417.55308467979637,"price_w":450.781612},{"time_s":0.490481395,"energy_j":417.4946893051281,"price_w":450.338232},{"time_s":0.490883532,"energy_j":417.44870967152633,"price_w":444.459321},{"time_s":0.491387649,"energy_j":417.39403348400174,"price_w":438.420994},{"time_s":0.491846211,"energy_j":417.3470671081511,"price_w":437.093688},{"time_s":0.493021814,"energy_j":417.2282210652573,"price_w":434.919882},{"time_s":0.493722501,"energy_j":417.15890918989834,"price_w":433.120148},{"time_s":0.493955438,"energy_j":417.13628631398365,"price_w":423.653614},{"time_s":0.494440953,"energy_j":417.0937291695825,"price_w":354.181044},{"time_s":0.494990356,"energy_j":417.0837404494657,"price_w":297.698637},{"time_s":0.495437509,"energy_j":417.1008670188353,"price_w":296.543433},{"time_s":0.495986912,"energy_j":417.1225445751148,"price_w":296.519569},{"time_s":0.496256942,"energy_j":417.1332054758977,"price_w":291.141317},{"time_s":0.496387019,"energy_j":417.1390405588063,"price_w":290.50793},{"time_s":0.496424126,"energy_j":417.1407286330478,"price_w":287.270013},{"time_s":0.497141309,"energy_j":417.17567695131436,"price_w":284.962894},{"time_s":0.497308493,"energy_j":417.1842095388439,"price_w":276.346725},{"time_s":0.497456191,"energy_j":417.19302020825484,"price_w":274.153167},{"time_s":0.49819286,"energy_j":417.2385808528742,"price_w":256.531234},{"time_s":0.498442404,"energy_j":417.2584118066168,"price_w":252.911357},{"time_s":0.498842126,"energy_j":417.2916241651741,"price_w":252.719293},{"time_s":0.499077227,"energy_j":417.31120354267046,"price_w":243.234965},{"time_s":0.502348023,"energy_j":417.61461904808834,"price_w":237.689929},{"time_s":0.502496204,"energy_j":417.6291867327192,"price_w":234.618796},{"time_s":0.503327125,"energy_j":417.71342650412805,"price_w":234.426732},{"time_s":0.503726847,"energy_j":417.75402757395955,"price_w":230.806855},{"time_s":0.503884546,"energy_j":417.77061642773293,"price_w":229.510305},{"time_s":0.505138093,"energy_j":417.9041062654311,"price_w":229.07376},{"time_s":0.505857481,"energy_j":417.98102771937226,"price_w":227.753832},{"time_s":0.506031989,"energy_j":417.9999175416575,"price_w":225.560274},{"time_s":0.506189688,"energy_j":418.01733377600806,"price_w":225.372602},{"time_s":0.507052859,"energy_j":418.11282413776706,"price_w":224.19814},{"time_s":0.507516743,"energy_j":418.16468723179133,"price_w":218.673957},{"time_s":0.507898165,"energy_j":418.20943796576444,"price_w":218.653104},{"time_s":0.508055864,"energy_j":418.2279434539168,"price_w":218.34637},{"time_s":0.509031572,"energy_j":418.34273904193685,"price_w":216.395361},{"time_s":0.509431294,"energy_j":418.3905476474472,"price_w":213.631615},{"time_s":0.510276678,"energy_j":418.493995922232,"price_w":211.954459},{"time_s":0.51030126,"energy_j":418.4970452097209,"price_w":211.808993},{"time_s":0.511524739,"energy_j":418.6489902987742,"price_w":206.845968},{"time_s":0.511949807,"energy_j":418.7038895448484,"price_w":206.190794},{"time_s":0.512260837,"energy_j":418.74426410219064,"price_w":203.494604},{"time_s":0.512331229,"energy_j":418.7535914220258,"price_w":200.435328},{"time_s":0.512659164,"energy_j":418.7980478227381,"price_w":198.148002},{"time_s":0.513106221,"energy_j":418.85967552340804,"price_w":196.391529},{"time_s":0.514644323,"energy_j":419.07440759187006,"price_w":195.057076},{"time_s":0.514770765,"energy_j":419.0922286970665,"price_w":195.05353},{"time_s":0.515012353,"energy_j":419.12627967286085,"price_w":195.039486},{"time_s":0.515475342,"energy_j":419.1915428402772,"price_w":194.683342},{"time_s":0.516026759,"energy_j":419.26946724788155,"price_w":191.063465},{"time_s":0.516275043,"energy_j":419.30545267053753,"price_w":186.776422},{"time_s":0.516309715,"energy_j":419.3106265504339,"price_w":185.068235},{"time_s":0.51672731,"energy_j":419.37365490083914,"price_w":184.345637},{"time_s":0.51822626,"energy_j":419.600977208258,"price_w":179.394046},{"time_s":0.51831133,"energy_j":419.61429967676474,"price_w":178.961125},{"time_s":0.518690571,"energy_j":419.67385525675866,"price_w":178.214978},{"time_s":0.519586581,"energy_j":419.8152322143208,"price_w":175.768832},{"time_s":0.520431965,"energy_j":419.9506890800493,"price_w":173.353673},{"time_s":0.520876104,"energy_j":420.02292665707677,"price_w":173.005086},{"time_s":0.521027542,"energy_j":420.04761028086307,"price_w":170.39505},{"time_s":0.521406783,"energy_j":420.11041446770605,"price_w":167.351897},{"time_s":0.523391942,"energy_j":420.44520776720947,"price_w":166.252957},{"time_s":0.524276309,"energy_j":420.5953264503862,"price_w":165.64371},{"time_s":0.524696942,"energy_j":420.6669839277178,"price_w":162.249286},{"time_s":0.525159931,"energy_j":420.74742859704196,"price_w":161.942552},{"time_s":0.52600892,"energy_j":420.89520145576205,"price_w":161.882832},{"time_s":0.526226559,"energy_j":420.9330961420884,"price_w":159.203714},{"time_s":0.527018644,"energy_j":421.07313382828465,"price_w":158.481116},{"time_s":0.527597871,"energy_j":421.1759575589074,"price_w":155.550641},{"time_s":0.528045401,"energy_j":421.2567140605406,"price_w":154.500456},{"time_s":0.528299506,"energy_j":421.30283400216877,"price_w":151.804266},{"time_s":0.529326712,"energy_j":421.492040965308,"price_w":151.512415},{"time_s":0.530119234,"energy_j":421.6382514351473,"price_w":150.115613},{"time_s":0.531344833,"energy_j":421.8660711539701,"price_w":145.445551},{"time_s":0.531496271,"energy_j":421.8949283386178,"price_w":144.113837},{"time_s":0.532313423,"energy_j":422.0517285004855,"price_w":142.681805},{"time_s":0.533081708,"energy_j":422.2002519699311,"price_w":140.49396},{"time_s":0.533632868,"energy_j":422.3080070789375,"price_w":137.730214},{"time_s":0.534757166,"energy_j":422.53092140279773,"price_w":137.126999},{"time_s":0.534834265,"energy_j":422.5462543123018,"price_w":136.405122},{"time_s":0.535326586,"energy_j":422.6445190622337,"price_w":132.700352},{"time_s":0.535456669,"energy_j":422.67096489034446,"price_w":132.33343},{"time_s":0.535868941,"energy_j":422.7549309144915,"price_w":129.193457},{"time_s":0.53833635,"energy_j":423.2652072399486,"price_w":124.964297},{"time_s":0.538698588,"energy_j":423.3416523909319,"price_w":123.815205},{"time_s":0.538782603,"energy_j":423.3594790964838,"price_w":121.609001},{"time_s":0.538936801,"energy_j":423.3925377597476,"price_w":121.143427},{"time_s":0.539391178,"energy_j":423.4901636448177,"price_w":117.752632},{"time_s":0.54063627,"energy_j":423.76190169673555,"price_w":117.030034},{"time_s":0.541858587,"energy_j":424.02955240866675,"price_w":116.432829},{"time_s":0.545212552,"energy_j":424.76597301534974,"price_w":112.140175},{"time_s":0.545489185,"energy_j":424.827900030319,"price_w":110.887793},{"time_s":0.547387109,"energy_j":425.2551458906772,"price_w":108.615346},{"time_s":0.548271476,"energy_j":425.4562373749813,"price_w":105.117695},{"time_s":0.55003113,"energy_j":425.86251034650377,"price_w":104.629302},{"time_s":0.551072268,"energy_j":426.10339917227805,"price_w":104.189148},{"time_s":0.551519798,"energy_j":426.2071414828736,"price_w":103.861561},{"time_s":0.551792598,"energy_j":426.27046884903285,"price_w":101.45031},{"time_s":0.553018197,"energy_j":426.5579327145472,"price_w":101.122723},{"time_s":0.554807104,"energy_j":426.97810631951336,"price_w":100.400125},{"time_s":0.556022819,"energy_j":427.264528621549,"price_w":95.448534},{"time_s":0.557801842,"energy_j":427.69247521224673,"price_w":95.003341},{"time_s":0.558085077,"energy_j":427.7607339009586,"price_w":90.05175},{"time_s":0.558291213,"energy_j":427.8114326894206,"price_w":83.809593},{"time_s":0.558532801,"energy_j":427.87235886546694,"price_w":79.327321},{"time_s":0.560086796,"energy_j":428.2712269252695,"price_w":73.626239},{"time_s":0.560519908,"energy_j":428.3848641496437,"price_w":71.159342},{"time_s":0.561373992,"energy_j":428.611060318191,"price_w":69.236954},{"time_s":0.563879708,"energy_j":429.27949275076196,"price_w":62.472824},{"time_s":0.56627655,"energy_j":429.9350941743401,"price_w":61.782149},{"time_s":0.571019313,"energy_j":431.2356444520025,"price_w":61.342381},{"time_s":0.582119597,"energy_j":434.2844220256663,"price_w":58.270998},{"time_s":0.5831531,"energy_j":434.57145578242023,"price_w":58.080991},{"time_s":0.585373401,"energy_j":435.18851963602197,"price_w":57.637611},{"time_s":0.588996669,"energy_j":436.1971011724892,"price_w":56.927788},{"time_s":0.590894593,"energy_j":436.7267590213771,"price_w":53.960005},{"time_s":0.598148123,"energy_j":438.77254458630944,"price_w":51.361493},{"time_s":0.599530386,"energy_j":439.1659898629108,"price_w":51.221167},{"time_s":0.60553963,"energy_j":440.877295356443,"price_w":50.229143},{"time_s":0.607212759,"energy_j":441.35542686464464,"price_w":49.901556},{"time_s":0.609274466,"energy_j":441.9452780293285,"price_w":49.178958},{"time_s":0.610773416,"energy_j":442.3752084302344,"price_w":49.021442},{"time_s":0.61435927,"energy_j":443.40427164035293,"price_w":48.665303},{"time_s":0.617429227,"energy_j":444.28637680475094,"price_w":45.824383},{"time_s":0.629238333,"energy_j":447.71309142451935,"price_w":45.045426},{"time_s":0.629638055,"energy_j":447.8293923687478,"price_w":44.227367},{"time_s":0.631623214,"energy_j":448.4086074371014,"price_w":43.912951},{"time_s":0.632876761,"energy_j":448.7747522811143,"price_w":42.28168},{"time_s":0.633722145,"energy_j":449.0230570493492,"price_w":42.156478},{"time_s":0.636522937,"energy_j":449.8460516350185,"price_w":40.300963},{"time_s":0.641736187,"energy_j":451.3876046396588,"price_w":33.502938},{"time_s":0.64218251,"energy_j":451.5226160358618,"price_w":24.640884},{"time_s":0.646931132,"energy_j":453.00114278399997,"price_w":0.0}],"least_energy":247,"baseline":{"time_s":0.39960552,"energy_j":541.7325138000002}}');
CREATE TABLE heartbeat (at BIGINT NOT NULL);
INSERT INTO "heartbeat" VALUES(1795447180606);
CREATE TABLE jobs (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      id TEXT NOT NULL UNIQUE,
      key TEXT NOT NULL,
      body TEXT NOT NULL,
      target TEXT NOT NULL,
      status TEXT NOT NULL DEFAULT 'waiting',
      problem TEXT NOT NULL DEFAULT '',
      created BIGINT NOT NULL,
      ended BIGINT NOT NULL DEFAULT 0,
      profile_version BIGINT NOT NULL DEFAULT 0,
      generation BIGINT NOT NULL DEFAULT 0,
      planned_generation BIGINT NOT NULL DEFAULT 0,
      assignment_version BIGINT NOT NULL DEFAULT 0,
      last_step BIGINT NOT NULL DEFAULT -1,
      last_step_at BIGINT NOT NULL DEFAULT 0,
      summary TEXT NOT NULL DEFAULT '',
      measurement_bytes BIGINT NOT NULL DEFAULT 0, owner TEXT NOT NULL DEFAULT '');
INSERT INTO "jobs" VALUES(1,'j-4661277017b431e5','upgraded','{"fixed":{"all_reduce_s":0.0,"load_s":0.0,"optimizer_s":0.0,"p2p_s":0.0},"gpu":{"blocking_power_w":84.0,"switch_latency_ms":2.0},"key":"upgraded","pipelines":2,"schedule":{"chunks":1,"kind":"1f1b","microbatches":6,"pp_ranks":4},"target":{"kind":"slowdown","value":0.0},"tensor_parallel":1}','{"kind":"slowdown","value":0.0}','planned','',1795447180830,0,1,1,1,1,-1,0,'',0,'');
CREATE TABLE measurements (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      body TEXT NOT NULL,
      created BIGINT NOT NULL);
CREATE TABLE node_claims (
      node TEXT PRIMARY KEY,
      instance TEXT NOT NULL,
      seen BIGINT NOT NULL);
CREATE TABLE node_ranks (
      job TEXT NOT NULL,
      dp_rank BIGINT NOT NULL,
      pp_rank BIGINT NOT NULL,
      tp_rank BIGINT NOT NULL,
      node TEXT NOT NULL,
      PRIMARY KEY (job, dp_rank, pp_rank, tp_rank),
      FOREIGN KEY (job, node) REFERENCES nodes (job, node) ON DELETE CASCADE);
CREATE TABLE nodes (
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      node TEXT NOT NULL,
      ranks TEXT NOT NULL,
      acknowledged BIGINT NOT NULL DEFAULT 0,
      following BIGINT NOT NULL DEFAULT 0,
      since_step BIGINT NOT NULL DEFAULT -1,
      seen BIGINT NOT NULL, ran BIGINT NOT NULL DEFAULT 0,
      PRIMARY KEY (job, node));
CREATE TABLE planning (
      job TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
      due BIGINT NOT NULL,
      worker TEXT NOT NULL DEFAULT '',
      until BIGINT NOT NULL DEFAULT 0);
CREATE TABLE plans (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      id TEXT NOT NULL UNIQUE,
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      slug TEXT NOT NULL,
      profile_version BIGINT NOT NULL,
      body TEXT NOT NULL,
      created BIGINT NOT NULL);
INSERT INTO "plans" VALUES(1,'p-eb01798437cb7c00','j-4661277017b431e5','no-slowdown',1,'{
  "format": "perseus-plan",
  "version": 1,
  "job": {"profile":"profile 1 of upgraded","schedule":"1f1b","pp_ranks":4,"microbatches":6,"chunks":1,"pipelines":2,"gpus_per_stage":1,"blocking_power_w":84.0,"switch_latency_ms":2.0,"fixed":{}},
  "target": "no slowdown",
  "deadline_s": 0.39960552,
  "time_s": 0.399605031,
  "energy_j": 485.59552031537805,
  "lower_bound_j": 481.7198392044356,
  "gap": 0.008045508603804263,
  "average_power_w": 1215.1887054579602,
  "switches": 32,
  "baseline": {"time_s":0.39960552,"energy_j":541.7325138000002},
  "pp_ranks": [
    {"pp_rank": 0, "name": "pp_rank 0", "instructions": [
      {"kind":"forward","stage":0,"chunk":0,"microbatch":0,"frequency":1380,"start_s":0,"duration_s":0.014793607,"energy_j":7.031398},
      {"kind":"forward","stage":0,"chunk":0,"microbatch":1,"frequency":810,"start_s":0.014793607,"duration_s":0.023091337,"energy_j":5.672190324290486},
      {"kind":"forward","stage":0,"chunk":0,"microbatch":2,"frequency":810,"start_s":0.037884944,"duration_s":0.024388505,"energy_j":5.459708},
      {"kind":"forward","stage":0,"chunk":0,"microbatch":3,"frequency":810,"start_s":0.062273449,"duration_s":0.024388505,"energy_j":5.459708},
      {"kind":"backward","stage":0,"chunk":0,"microbatch":0,"frequency":1230,"start_s":0.146347308,"duration_s":0.030160704,"energy_j":11.271645},
      {"kind":"forward","stage":0,"chunk":0,"microbatch":4,"frequency":1230,"start_s":0.176508012,"duration_s":0.016383509,"energy_j":6.121451},
      {"kind":"backward","stage":0,"chunk":0,"microbatch":1,"frequency":1230,"start_s":0.192939104,"duration_s":0.030160704,"energy_j":11.271645},
      {"kind":"forward","stage":0,"chunk":0,"microbatch":5,"frequency":1140,"start_s":0.223099808,"duration_s":0.017471564,"energy_j":5.658259860795756},
      {"kind":"backward","stage":0,"chunk":0,"microbatch":2,"frequency":810,"start_s":0.240571372,"duration_s":0.043318698,"energy_j":9.895214174705742},
      {"kind":"backward","stage":0,"chunk":0,"microbatch":3,"frequency":870,"start_s":0.294933909,"duration_s":0.041244695,"energy_j":9.753331},
      {"kind":"backward","stage":0,"chunk":0,"microbatch":4,"frequency":1125,"start_s":0.338043481,"duration_s":0.0327095,"energy_j":10.098523387579638},
      {"kind":"backward","stage":0,"chunk":0,"microbatch":5,"frequency":1410,"start_s":0.372079117,"duration_s":0.027525914,"energy_j":12.979001427425043}
    ]},
    {"pp_rank": 1, "name": "pp_rank 1", "instructions": [
      {"kind":"forward","stage":1,"chunk":0,"microbatch":0,"frequency":1410,"start_s":0.014793607,"duration_s":0.015056087,"energy_j":7.151783},
      {"kind":"forward","stage":1,"chunk":0,"microbatch":1,"frequency":810,"start_s":0.037884944,"duration_s":0.024745081,"energy_j":5.540618},
      {"kind":"forward","stage":1,"chunk":0,"microbatch":2,"frequency":810,"start_s":0.062630025,"duration_s":0.024745081,"energy_j":5.540618},
      {"kind":"backward","stage":1,"chunk":0,"microbatch":0,"frequency":1350,"start_s":0.118156246,"duration_s":0.028191062,"energy_j":12.955218},
      {"kind":"forward","stage":1,"chunk":0,"microbatch":3,"frequency":1080,"start_s":0.146347308,"duration_s":0.018340256,"energy_j":5.556980690778865},
      {"kind":"backward","stage":1,"chunk":0,"microbatch":1,"frequency":1395,"start_s":0.164790987,"duration_s":0.028148117,"energy_j":13.015996275256425},
      {"kind":"forward","stage":1,"chunk":0,"microbatch":4,"frequency":1170,"start_s":0.192939104,"duration_s":0.017125526,"energy_j":6.034964335790516},
      {"kind":"backward","stage":1,"chunk":0,"microbatch":2,"frequency":1245,"start_s":0.210069103,"duration_s":0.030451818,"energy_j":11.58973110297073},
      {"kind":"forward","stage":1,"chunk":0,"microbatch":5,"frequency":1365,"start_s":0.240571372,"duration_s":0.01523558,"energy_j":7.0148537469993615},
      {"kind":"backward","stage":1,"chunk":0,"microbatch":3,"frequency":915,"start_s":0.255806952,"duration_s":0.039126957,"energy_j":10.116907163725953},
      {"kind":"backward","stage":1,"chunk":0,"microbatch":4,"frequency":1080,"start_s":0.303603998,"duration_s":0.034439483,"energy_j":9.773459},
      {"kind":"backward","stage":1,"chunk":0,"microbatch":5,"frequency":1395,"start_s":0.344297657,"duration_s":0.02778146,"energy_j":13.204969}
    ]},
    {"pp_rank": 2, "name": "pp_rank 2", "instructions": [
      {"kind":"forward","stage":2,"chunk":0,"microbatch":0,"frequency":1395,"start_s":0.029849694,"duration_s":0.015116914,"energy_j":7.170667},
      {"kind":"forward","stage":2,"chunk":0,"microbatch":1,"frequency":810,"start_s":0.062630025,"duration_s":0.02488809,"energy_j":5.565162},
      {"kind":"backward","stage":2,"chunk":0,"microbatch":0,"frequency":1380,"start_s":0.090175891,"duration_s":0.027980355,"energy_j":13.272795},
      {"kind":"forward","stage":2,"chunk":0,"microbatch":2,"frequency":1170,"start_s":0.118156246,"duration_s":0.017213491,"energy_j":6.045427214354737},
      {"kind":"backward","stage":2,"chunk":0,"microbatch":1,"frequency":1305,"start_s":0.135385174,"duration_s":0.029405813,"energy_j":12.36411234250464},
      {"kind":"forward","stage":2,"chunk":0,"microbatch":3,"frequency":1305,"start_s":0.164790987,"duration_s":0.015814978,"energy_j":6.736357},
      {"kind":"backward","stage":2,"chunk":0,"microbatch":2,"frequency":1290,"start_s":0.180609085,"duration_s":0.029460018,"energy_j":12.26529012986703},
      {"kind":"forward","stage":2,"chunk":0,"microbatch":4,"frequency":1320,"start_s":0.210069103,"duration_s":0.015709443,"energy_j":6.827008420665127},
      {"kind":"backward","stage":2,"chunk":0,"microbatch":3,"frequency":1275,"start_s":0.225818368,"duration_s":0.029739408,"energy_j":12.092310311046202},
      {"kind":"forward","stage":2,"chunk":0,"microbatch":5,"frequency":1395,"start_s":0.255806952,"duration_s":0.015230877,"energy_j":7.102068704453767},
      {"kind":"backward","stage":2,"chunk":0,"microbatch":4,"frequency":1140,"start_s":0.271037829,"duration_s":0.032566169,"energy_j":10.64796313331807},
      {"kind":"backward","stage":2,"chunk":0,"microbatch":5,"frequency":1410,"start_s":0.316247112,"duration_s":0.028050545,"energy_j":13.325576}
    ]},
    {"pp_rank": 3, "name": "pp_rank 3", "instructions": [
      {"kind":"forward","stage":3,"chunk":0,"microbatch":0,"frequency":1410,"start_s":0.044966608,"duration_s":0.015849518,"energy_j":7.530366},
      {"kind":"backward","stage":3,"chunk":0,"microbatch":0,"frequency":1410,"start_s":0.060816126,"duration_s":0.029359765,"energy_j":13.968519},
      {"kind":"forward","stage":3,"chunk":0,"microbatch":1,"frequency":1410,"start_s":0.090175891,"duration_s":0.015849518,"energy_j":7.530366},
      {"kind":"backward","stage":3,"chunk":0,"microbatch":1,"frequency":1410,"start_s":0.106025409,"duration_s":0.029359765,"energy_j":13.968519},
      {"kind":"forward","stage":3,"chunk":0,"microbatch":2,"frequency":1395,"start_s":0.135385174,"duration_s":0.015860233,"energy_j":7.523736379271723},
      {"kind":"backward","stage":3,"chunk":0,"microbatch":2,"frequency":1410,"start_s":0.151245407,"duration_s":0.029363678,"energy_j":13.97065264157813},
      {"kind":"forward","stage":3,"chunk":0,"microbatch":3,"frequency":1410,"start_s":0.180609085,"duration_s":0.015849518,"energy_j":7.530366},
      {"kind":"backward","stage":3,"chunk":0,"microbatch":3,"frequency":1410,"start_s":0.196458603,"duration_s":0.029359765,"energy_j":13.968519},
      {"kind":"forward","stage":3,"chunk":0,"microbatch":4,"frequency":1410,"start_s":0.225818368,"duration_s":0.015849518,"energy_j":7.530366},
      {"kind":"backward","stage":3,"chunk":0,"microbatch":4,"frequency":1410,"start_s":0.241667886,"duration_s":0.029359765,"energy_j":13.968519},
      {"kind":"forward","stage":3,"chunk":0,"microbatch":5,"frequency":1410,"start_s":0.271037829,"duration_s":0.015849518,"energy_j":7.530366},
      {"kind":"backward","stage":3,"chunk":0,"microbatch":5,"frequency":1410,"start_s":0.286887347,"duration_s":0.029359765,"energy_j":13.968519}
    ]}
  ]
}
',1795447180866);
CREATE TABLE profiles (
      job TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
      csv TEXT NOT NULL);
INSERT INTO "profiles" VALUES('j-4661277017b431e5','stage,instruction,frequency,time,energy
0,forward,1410,0.014813328,7.028249
0,forward,1395,0.014818877,7.041053
0,forward,1380,0.014793607,7.031398
0,forward,1365,0.014888998,7.022138
0,forward,1350,0.015043146,6.918058
0,forward,1335,0.01517608,6.804951
0,forward,1320,0.015336805,6.692256
0,forward,1305,0.015511368,6.614022
0,forward,1290,0.01565821,6.502655
0,forward,1275,0.015848588,6.421655
0,forward,1260,0.016030039,6.311388
0,forward,1245,0.01621913,6.238948
0,forward,1230,0.016383509,6.121451
0,forward,1215,0.016604826,6.051387
0,forward,1200,0.016814284,5.957594
0,forward,1185,0.017001968,5.856232
0,forward,1170,0.017191678,5.767685
0,forward,1155,0.017394588,5.681889
0,forward,1140,0.017622856,5.593854
0,forward,1125,0.017841698,5.509587
0,forward,1110,0.018057039,5.419962
0,forward,1095,0.018293411,5.336919
0,forward,1080,0.018515601,5.257438
0,forward,1065,0.018782107,5.278274
0,forward,1050,0.019014672,5.270995
0,forward,1035,0.019311872,5.285885
0,forward,1020,0.019549104,5.284029
0,forward,1005,0.019867258,5.305582
0,forward,990,0.020113148,5.307817
0,forward,975,0.020446578,5.334839
0,forward,960,0.02072479,5.334592
0,forward,945,0.02105653,5.353115
0,forward,930,0.021330069,5.346717
0,forward,915,0.021684049,5.365137
0,forward,900,0.022054128,5.382193
0,forward,885,0.022405049,5.387462
0,forward,870,0.022765372,5.403067
0,forward,855,0.023134958,5.409457
0,forward,840,0.023553563,5.440855
0,forward,825,0.023981961,5.447495
0,forward,810,0.024388505,5.459708
0,backward,1410,0.027417373,13.039621
0,backward,1395,0.02743547,13.042814
0,backward,1380,0.027453179,13.035068
0,backward,1365,0.027503162,12.987704
0,backward,1350,0.027819473,12.809763
0,backward,1335,0.028080404,12.594094
0,backward,1320,0.028337532,12.408063
0,backward,1305,0.028646873,12.194105
0,backward,1290,0.028960409,12.03922
0,backward,1275,0.029247364,11.832815
0,backward,1260,0.029500807,11.6198
0,backward,1245,0.029835751,11.456319
0,backward,1230,0.030160704,11.271645
0,backward,1215,0.030533697,11.109757
0,backward,1200,0.030897522,10.939045
0,backward,1185,0.031199612,10.763101
0,backward,1170,0.031569636,10.593594
0,backward,1155,0.031943347,10.414603
0,backward,1140,0.03230575,10.269311
0,backward,1125,0.032681445,10.099658
0,backward,1110,0.033086735,9.945619
0,backward,1095,0.03346599,9.757109
0,backward,1080,0.033828515,9.605361
0,backward,1065,0.034261627,9.609854
0,backward,1050,0.03474129,9.63307
0,backward,1035,0.035115711,9.620821
0,backward,1020,0.035667802,9.642722
0,backward,1005,0.036188503,9.671187
0,backward,990,0.036648697,9.669746
0,backward,975,0.03717764,9.688297
0,backward,960,0.037621427,9.657813
0,backward,945,0.038248856,9.717064
0,backward,930,0.038776373,9.697475
0,backward,915,0.039422804,9.74063
0,backward,900,0.03999336,9.765068
0,backward,885,0.04066766,9.782179
0,backward,870,0.041244695,9.753331
0,backward,855,0.042008918,9.810471
0,backward,840,0.042632579,9.82178
0,backward,825,0.043374387,9.848078
0,backward,810,0.044045487,9.870526
1,forward,1410,0.015056087,7.151783
1,forward,1395,0.015061289,7.146861
1,forward,1380,0.015079296,7.165905
1,forward,1365,0.015070991,7.108872
1,forward,1350,0.015252916,7.020359
1,forward,1335,0.015408182,6.89271
1,forward,1320,0.015566727,6.809463
1,forward,1305,0.015722137,6.701218
1,forward,1290,0.015902253,6.602023
1,forward,1275,0.016104342,6.515795
1,forward,1260,0.016272,6.415809
1,forward,1245,0.016460662,6.315046
1,forward,1230,0.016644588,6.218562
1,forward,1215,0.016813476,6.127954
1,forward,1200,0.017034535,6.040135
1,forward,1185,0.017243169,5.943919
1,forward,1170,0.01744161,5.864706
1,forward,1155,0.017643262,5.760522
1,forward,1140,0.017872543,5.66335
1,forward,1125,0.018122201,5.588354
1,forward,1110,0.018350256,5.509748
1,forward,1095,0.01857323,5.417465
1,forward,1080,0.018806167,5.336142
1,forward,1065,0.019047755,5.336188
1,forward,1050,0.019329572,5.34944
1,forward,1035,0.019594301,5.366156
1,forward,1020,0.019893044,5.382143
1,forward,1005,0.020146173,5.396665
1,forward,990,0.020430018,5.381303
1,forward,975,0.020742755,5.408215
1,forward,960,0.021069555,5.419234
1,forward,945,0.021380269,5.436085
1,forward,930,0.021695373,5.433918
1,forward,915,0.022018617,5.449922
1,forward,900,0.022378242,5.455684
1,forward,885,0.022728698,5.465627
1,forward,870,0.023152819,5.494219
1,forward,855,0.023499975,5.489779
1,forward,840,0.023899697,5.50535
1,forward,825,0.024287808,5.52213
1,forward,810,0.024745081,5.540618
1,backward,1410,0.027889677,13.2466
1,backward,1395,0.02778146,13.204969
1,backward,1380,0.027863983,13.241089
1,backward,1365,0.02795525,13.167326
1,backward,1350,0.028191062,12.955218
1,backward,1335,0.028481008,12.77195
1,backward,1320,0.028727565,12.547321
1,backward,1305,0.029030416,12.384797
1,backward,1290,0.029367613,12.203853
1,backward,1275,0.029653834,11.98769
1,backward,1260,0.02998329,11.810157
1,backward,1245,0.030346538,11.644987
1,backward,1230,0.030667705,11.480354
1,backward,1215,0.030994967,11.27812
1,backward,1200,0.031262386,11.081707
1,backward,1185,0.031672708,10.924144
1,backward,1170,0.032036726,10.757894
1,backward,1155,0.032400572,10.573423
1,backward,1140,0.032721962,10.409008
1,backward,1125,0.033144182,10.228714
1,backward,1110,0.033546714,10.079137
1,backward,1095,0.033953968,9.910382
1,backward,1080,0.034439483,9.773459
1,backward,1065,0.034877093,9.791652
1,backward,1050,0.035232005,9.765633
1,backward,1035,0.035686382,9.77143
1,backward,1020,0.036240477,9.812391
1,backward,1005,0.036760978,9.831806
1,backward,990,0.037232658,9.820618
1,backward,975,0.037722669,9.814271
1,backward,960,0.038259913,9.833326
1,backward,945,0.038828333,9.864819
1,backward,930,0.03934024,9.863294
1,backward,915,0.0399878,9.881855
1,backward,900,0.04061448,9.885146
1,backward,885,0.041229467,9.917155
1,backward,870,0.041875141,9.924391
1,backward,855,0.042465432,9.919645
1,backward,840,0.043280258,9.973657
1,backward,825,0.043976826,9.980724
1,backward,810,0.044685733,9.977193
2,forward,1410,0.015122812,7.199094
2,forward,1395,0.015116914,7.170667
2,forward,1380,0.015129724,7.172471
2,forward,1365,0.01518241,7.15611
2,forward,1350,0.01530897,7.042374
2,forward,1335,0.015485148,6.93911
2,forward,1320,0.015665109,6.850382
2,forward,1305,0.015814978,6.736357
2,forward,1290,0.016020225,6.663157
2,forward,1275,0.016169389,6.537141
2,forward,1260,0.01633079,6.439543
2,forward,1245,0.016533826,6.344408
2,forward,1230,0.016731547,6.247873
2,forward,1215,0.016880898,6.14556
2,forward,1200,0.017123522,6.059428
2,forward,1185,0.017316809,5.973549
2,forward,1170,0.017530903,5.873749
2,forward,1155,0.017709952,5.770883
2,forward,1140,0.017965438,5.708942
2,forward,1125,0.018185323,5.617629
2,forward,1110,0.018417692,5.527396
2,forward,1095,0.018668242,5.449673
2,forward,1080,0.018885555,5.355785
2,forward,1065,0.019157636,5.372664
2,forward,1050,0.019449666,5.391682
2,forward,1035,0.019713575,5.397631
2,forward,1020,0.019969089,5.395113
2,forward,1005,0.020272796,5.413234
2,forward,990,0.020568329,5.424065
2,forward,975,0.020783479,5.407166
2,forward,960,0.021147245,5.437931
2,forward,945,0.021460098,5.442071
2,forward,930,0.021807947,5.457949
2,forward,915,0.022138477,5.464992
2,forward,900,0.022456608,5.463669
2,forward,885,0.022854749,5.494086
2,forward,870,0.023231611,5.514159
2,forward,855,0.023640847,5.524934
2,forward,840,0.024031474,5.542298
2,forward,825,0.024441767,5.542624
2,forward,810,0.02488809,5.565162
2,backward,1410,0.028050545,13.325576
2,backward,1395,0.027989784,13.303588
2,backward,1380,0.027980355,13.272795
2,backward,1365,0.028141846,13.279479
2,backward,1350,0.02839025,13.072363
2,backward,1335,0.028643048,12.833454
2,backward,1320,0.028913904,12.643867
2,backward,1305,0.029224993,12.468581
2,backward,1290,0.029477254,12.250381
2,backward,1275,0.029799441,12.052199
2,backward,1260,0.030104673,11.868497
2,backward,1245,0.030517722,11.723379
2,backward,1230,0.030762425,11.509606
2,backward,1215,0.031103235,11.319259
2,backward,1200,0.031467526,11.157438
2,backward,1185,0.031772823,10.973768
2,backward,1170,0.032154703,10.775937
2,backward,1155,0.032531851,10.62692
2,backward,1140,0.032918336,10.443604
2,backward,1125,0.033376783,10.315281
2,backward,1110,0.033663451,10.107076
2,backward,1095,0.034172354,9.980945
2,backward,1080,0.03457434,9.825884
2,backward,1065,0.034953581,9.814978
2,backward,1050,0.035445902,9.819378
2,backward,1035,0.03593592,9.853904
2,backward,1020,0.036395747,9.850829
2,backward,1005,0.03690034,9.862932
2,backward,990,0.03739811,9.880461
2,backward,975,0.037913311,9.859224
2,backward,960,0.038423436,9.886753
2,backward,945,0.039008923,9.909864
2,backward,930,0.039554727,9.903349
2,backward,915,0.040188803,9.932709
2,backward,900,0.040775307,9.934085
2,backward,885,0.041351291,9.933234
2,backward,870,0.042029088,9.966776
2,backward,855,0.042863504,10.015978
2,backward,840,0.043412998,10.003535
2,backward,825,0.044176135,10.038836
2,backward,810,0.044911948,10.05573
3,forward,1410,0.015849518,7.530366
3,forward,1395,0.01586178,7.522779
3,forward,1380,0.015862904,7.531128
3,forward,1365,0.015912515,7.500086
3,forward,1350,0.016060974,7.38324
3,forward,1335,0.016243098,7.291361
3,forward,1320,0.016420598,7.165769
3,forward,1305,0.016572745,7.076918
3,forward,1290,0.016738918,6.965239
3,forward,1275,0.016956613,6.873467
3,forward,1260,0.017152729,6.76928
3,forward,1245,0.017350874,6.663882
3,forward,1230,0.017518375,6.53707
3,forward,1215,0.017748409,6.461485
3,forward,1200,0.017937383,6.355443
3,forward,1185,0.018164126,6.248937
3,forward,1170,0.018356709,6.1554
3,forward,1155,0.018592595,6.071061
3,forward,1140,0.018832417,5.994011
3,forward,1125,0.019093688,5.894975
3,forward,1110,0.0193156,5.798756
3,forward,1095,0.01956935,5.711996
3,forward,1080,0.019801507,5.608953
3,forward,1065,0.020108812,5.644928
3,forward,1050,0.020370962,5.651654
3,forward,1035,0.020627566,5.644996
3,forward,1020,0.020917882,5.660073
3,forward,1005,0.021235613,5.679256
3,forward,990,0.021552027,5.688413
3,forward,975,0.021842286,5.684812
3,forward,960,0.022219018,5.708693
3,forward,945,0.022514463,5.704559
3,forward,930,0.022806129,5.707441
3,forward,915,0.023235084,5.747392
3,forward,900,0.023592592,5.745326
3,forward,885,0.023985783,5.775217
3,forward,870,0.024305304,5.770904
3,forward,855,0.024764561,5.79036
3,forward,840,0.025209286,5.799183
3,forward,825,0.025619652,5.823594
3,forward,810,0.026078161,5.837152
3,backward,1410,0.029359765,13.968519
3,backward,1395,0.029417312,13.999902
3,backward,1380,0.029334973,13.936316
3,backward,1365,0.029483061,13.90163
3,backward,1350,0.029723783,13.664208
3,backward,1335,0.030049509,13.453763
3,backward,1320,0.030343667,13.263172
3,backward,1305,0.030607549,13.049938
3,backward,1290,0.030954427,12.839712
3,backward,1275,0.031235035,12.633522
3,backward,1260,0.03157959,12.464256
3,backward,1245,0.031972329,12.270607
3,backward,1230,0.032301709,12.084881
3,backward,1215,0.032552712,11.850366
3,backward,1200,0.032984767,11.683353
3,backward,1185,0.033359557,11.49978
3,backward,1170,0.033747535,11.328791
3,backward,1155,0.034148644,11.15363
3,backward,1140,0.034539718,10.959163
3,backward,1125,0.034960962,10.794346
3,backward,1110,0.035309133,10.605093
3,backward,1095,0.035730773,10.416394
3,backward,1080,0.036280176,10.299622
3,backward,1065,0.036758858,10.325364
3,backward,1050,0.037164543,10.277853
3,backward,1035,0.037719062,10.321492
3,backward,1020,0.038206975,10.340172
3,backward,1005,0.038727461,10.340037
3,backward,990,0.039214792,10.356361
3,backward,975,0.039819541,10.353751
3,backward,960,0.040365401,10.374751
3,backward,945,0.040862453,10.37567
3,backward,930,0.041490925,10.392002
3,backward,915,0.042127814,10.411255
3,backward,900,0.042714685,10.403606
3,backward,885,0.043465916,10.450646
3,backward,870,0.044140853,10.488146
3,backward,855,0.044889041,10.500065
3,backward,840,0.045573386,10.501993
3,backward,825,0.04634145,10.512554
3,backward,810,0.047132887,10.559533
');
CREATE TABLE schema_version (version BIGINT NOT NULL);
INSERT INTO "schema_version" VALUES(3);
CREATE TABLE straggler_history (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      dp_rank BIGINT NOT NULL,
      source TEXT NOT NULL,
      slowdown DOUBLE PRECISION NOT NULL,
      starts BIGINT NOT NULL,
      ended BIGINT NOT NULL,
      measured DOUBLE PRECISION NOT NULL,
      why TEXT NOT NULL);
CREATE TABLE stragglers (
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      dp_rank BIGINT NOT NULL,
      source TEXT NOT NULL,
      slowdown DOUBLE PRECISION NOT NULL,
      starts BIGINT NOT NULL,
      expires BIGINT NOT NULL, suspended BIGINT NOT NULL DEFAULT 0, measured DOUBLE PRECISION NOT NULL DEFAULT 0,
      PRIMARY KEY (job, dp_rank, source));
CREATE TABLE tokens (
      id TEXT PRIMARY KEY,
      hash TEXT NOT NULL,
      scope TEXT NOT NULL,
      job TEXT NOT NULL,
      name TEXT NOT NULL,
      created BIGINT NOT NULL,
      expires BIGINT NOT NULL, nodes TEXT NOT NULL DEFAULT '', owner TEXT NOT NULL DEFAULT '', certificate TEXT NOT NULL DEFAULT '', previous_hash TEXT NOT NULL DEFAULT '', previous_until BIGINT NOT NULL DEFAULT 0, issued_by TEXT NOT NULL DEFAULT '');
CREATE TABLE zeus_ranks (
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      rank BIGINT NOT NULL,
      position BIGINT NOT NULL,
      body TEXT NOT NULL,
      PRIMARY KEY (job, rank));
CREATE UNIQUE INDEX jobs_running_key ON jobs (key) WHERE ended = 0;
CREATE INDEX jobs_key ON jobs (key);
CREATE INDEX jobs_ended ON jobs (ended);
CREATE INDEX measurements_job ON measurements (job, number);
CREATE INDEX plans_job ON plans (job, number);
CREATE INDEX nodes_node ON nodes (node);
CREATE INDEX node_ranks_node ON node_ranks (job, node);
CREATE UNIQUE INDEX zeus_ranks_position ON zeus_ranks (job, position);
CREATE INDEX tokens_nodes ON tokens (nodes);
CREATE INDEX audit_job ON audit (job, number);
CREATE INDEX audit_who ON audit (who, number);
CREATE INDEX straggler_history_job ON straggler_history (job, number);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('jobs',1);
INSERT INTO "sqlite_sequence" VALUES('plans',1);
COMMIT;

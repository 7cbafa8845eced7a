module @jit_functions attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x16xf32>, %arg1: tensor<4x16xf32>) -> (tensor<4x16xf32> {jax.result_info = "result[0]"}, tensor<4x16xf32> {jax.result_info = "result[1]"}, tensor<4x16xf32> {jax.result_info = "result[2]"}, tensor<4x16xf32> {jax.result_info = "result[3]"}, tensor<4x16xf32> {jax.result_info = "result[4]"}, tensor<4x16xf32> {jax.result_info = "result[5]"}, tensor<4x16xf32> {jax.result_info = "result[6]"}, tensor<4x16xf32> {jax.result_info = "result[7]"}, tensor<4x16xf32> {jax.result_info = "result[8]"}, tensor<4x16xf32> {jax.result_info = "result[9]"}, tensor<4x16xf32> {jax.result_info = "result[10]"}, tensor<4x16xf32> {jax.result_info = "result[11]"}, tensor<4x16xf32> {jax.result_info = "result[12]"}, tensor<4x16xf32> {jax.result_info = "result[13]"}, tensor<4x16xf32> {jax.result_info = "result[14]"}, tensor<4x16xf32> {jax.result_info = "result[15]"}, tensor<4x16xf32> {jax.result_info = "result[16]"}, tensor<4x16xf32> {jax.result_info = "result[17]"}) {
    %cst = stablehlo.constant dense<4.500000e-01> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<4x16xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<2> : tensor<i32>
    %c_1 = stablehlo.constant dense<2> : tensor<i32>
    %2 = stablehlo.clamp %c, %c_0, %c_1 : tensor<i32>
    %3 = "stablehlo.case"(%2) ({
      %56 = stablehlo.sine %1 : tensor<4x16xf32>
      stablehlo.return %56 : tensor<4x16xf32>
    }, {
      %56 = stablehlo.cosine %1 : tensor<4x16xf32>
      stablehlo.return %56 : tensor<4x16xf32>
    }, {
      %56 = stablehlo.tan %1 : tensor<4x16xf32>
      stablehlo.return %56 : tensor<4x16xf32>
    }) : (tensor<i32>) -> tensor<4x16xf32>
    %4 = stablehlo.slice %arg1 [0:1, 0:1] : (tensor<4x16xf32>) -> tensor<1x1xf32>
    %5 = stablehlo.reshape %4 : (tensor<1x1xf32>) -> tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %6 = stablehlo.compare GT, %5, %cst_2, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %7 = stablehlo.convert %6 : (tensor<i1>) -> tensor<i32>
    %8 = "stablehlo.case"(%7) ({
      %cst_13 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %56 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
      %57 = stablehlo.subtract %arg0, %56 : tensor<4x16xf32>
      stablehlo.return %57 : tensor<4x16xf32>
    }, {
      %cst_13 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %56 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
      %57 = stablehlo.multiply %arg0, %56 : tensor<4x16xf32>
      stablehlo.return %57 : tensor<4x16xf32>
    }) : (tensor<i32>) -> tensor<4x16xf32>
    %9 = chlo.erf %arg0 : tensor<4x16xf32> -> tensor<4x16xf32>
    %cst_3 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %10 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %11 = stablehlo.multiply %arg0, %10 : tensor<4x16xf32>
    %12 = chlo.erfc %11 : tensor<4x16xf32> -> tensor<4x16xf32>
    %13 = chlo.erf_inv %1 : tensor<4x16xf32> -> tensor<4x16xf32>
    %14 = stablehlo.ceil %arg0 : tensor<4x16xf32>
    %cst_4 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %16 = stablehlo.multiply %arg0, %15 : tensor<4x16xf32>
    %17 = call @round(%16) : (tensor<4x16xf32>) -> tensor<4x16xf32>
    %18 = chlo.sinh %1 : tensor<4x16xf32> -> tensor<4x16xf32>
    %19 = chlo.cosh %1 : tensor<4x16xf32> -> tensor<4x16xf32>
    %20 = chlo.atanh %1 : tensor<4x16xf32> -> tensor<4x16xf32>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %21 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %22 = stablehlo.compare GT, %arg0, %21, FLOAT : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xi1>
    %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %23 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %24 = stablehlo.divide %arg1, %23 : tensor<4x16xf32>
    %25 = call @nan_to_num(%24) : (tensor<4x16xf32>) -> tensor<4x16xf32>
    %26 = call @_where_0(%22, %arg0, %25) : (tensor<4x16xi1>, tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
    %27 = stablehlo.maximum %arg0, %arg1 : tensor<4x16xf32>
    %28 = stablehlo.subtract %arg0, %arg1 : tensor<4x16xf32>
    %29 = stablehlo.compare NE, %28, %28, FLOAT : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xi1>
    %30 = stablehlo.add %arg0, %arg1 : tensor<4x16xf32>
    %31 = stablehlo.abs %28 : tensor<4x16xf32>
    %32 = stablehlo.negate %31 : tensor<4x16xf32>
    %33 = stablehlo.exponential %32 : tensor<4x16xf32>
    %34 = stablehlo.log_plus_one %33 : tensor<4x16xf32>
    %35 = stablehlo.add %27, %34 : tensor<4x16xf32>
    %36 = stablehlo.select %29, %30, %35 : tensor<4x16xi1>, tensor<4x16xf32>
    %cst_7 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %37 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %38 = stablehlo.multiply %37, %arg0 : tensor<4x16xf32>
    %39 = stablehlo.negate %arg0 : tensor<4x16xf32>
    %cst_8 = stablehlo.constant dense<0.707106769> : tensor<f32>
    %40 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %41 = stablehlo.multiply %39, %40 : tensor<4x16xf32>
    %42 = chlo.erfc %41 : tensor<4x16xf32> -> tensor<4x16xf32>
    %43 = stablehlo.multiply %38, %42 : tensor<4x16xf32>
    %44 = stablehlo.cbrt %arg0 : tensor<4x16xf32>
    %c_9 = stablehlo.constant dense<-1> : tensor<i32>
    %cst_10 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %45 = call @clip(%arg0, %c_9, %cst_10) : (tensor<4x16xf32>, tensor<i32>, tensor<f32>) -> tensor<4x16xf32>
    %46 = stablehlo.multiply %arg0, %arg0 : tensor<4x16xf32>
    %47 = stablehlo.multiply %46, %arg0 : tensor<4x16xf32>
    %48 = stablehlo.sign %arg0 : tensor<4x16xf32>
    %49 = stablehlo.multiply %arg0, %arg0 : tensor<4x16xf32>
    %cst_11 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %50 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %51 = stablehlo.add %49, %50 : tensor<4x16xf32>
    %52 = stablehlo.log %51 : tensor<4x16xf32>
    %cst_12 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %53 = stablehlo.log %cst_12 : tensor<f32>
    %54 = stablehlo.broadcast_in_dim %53, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %55 = stablehlo.divide %52, %54 : tensor<4x16xf32>
    return %9, %12, %13, %14, %17, %18, %19, %20, %3, %8, %26, %36, %43, %44, %45, %47, %48, %55 : tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>
  }
  func.func private @round(%arg0: tensor<4x16xf32>) -> tensor<4x16xf32> {
    %0 = stablehlo.round_nearest_even %arg0 : tensor<4x16xf32>
    return %0 : tensor<4x16xf32>
  }
  func.func private @nan_to_num(%arg0: tensor<4x16xf32>) -> tensor<4x16xf32> {
    %0 = stablehlo.compare NE, %arg0, %arg0, FLOAT : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xi1>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = call @_where(%0, %cst, %arg0) : (tensor<4x16xi1>, tensor<f32>, tensor<4x16xf32>) -> tensor<4x16xf32>
    %cst_0 = stablehlo.constant dense<0x7F800000> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %3 = stablehlo.compare EQ, %1, %2, FLOAT : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xi1>
    %cst_1 = stablehlo.constant dense<3.40282347E+38> : tensor<f32>
    %4 = call @_where(%3, %cst_1, %1) : (tensor<4x16xi1>, tensor<f32>, tensor<4x16xf32>) -> tensor<4x16xf32>
    %cst_2 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %6 = stablehlo.compare EQ, %4, %5, FLOAT : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xi1>
    %cst_3 = stablehlo.constant dense<-3.40282347E+38> : tensor<f32>
    %7 = call @_where(%6, %cst_3, %4) : (tensor<4x16xi1>, tensor<f32>, tensor<4x16xf32>) -> tensor<4x16xf32>
    return %7 : tensor<4x16xf32>
  }
  func.func private @_where(%arg0: tensor<4x16xi1>, %arg1: tensor<f32>, %arg2: tensor<4x16xf32>) -> tensor<4x16xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %1 = stablehlo.select %arg0, %0, %arg2 : tensor<4x16xi1>, tensor<4x16xf32>
    return %1 : tensor<4x16xf32>
  }
  func.func private @_where_0(%arg0: tensor<4x16xi1>, %arg1: tensor<4x16xf32>, %arg2: tensor<4x16xf32>) -> tensor<4x16xf32> {
    %0 = stablehlo.select %arg0, %arg1, %arg2 : tensor<4x16xi1>, tensor<4x16xf32>
    return %0 : tensor<4x16xf32>
  }
  func.func private @clip(%arg0: tensor<4x16xf32>, %arg1: tensor<i32>, %arg2: tensor<f32>) -> tensor<4x16xf32> {
    %0 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %2 = stablehlo.maximum %1, %arg0 : tensor<4x16xf32>
    %3 = stablehlo.convert %arg2 : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
    %5 = stablehlo.minimum %4, %2 : tensor<4x16xf32>
    return %5 : tensor<4x16xf32>
  }
}
